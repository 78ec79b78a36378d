#include "target.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "../tvm/error.h"
#include "../tvm/registry.h"
#include "amd.h"
#include "nvidia.h"
#include "registers.h"

namespace tl {
namespace {

Map<String, Any> Describe(const String& kind, const String& arch) {
  const Target& t = FindTarget(kind, arch, Span());
  Array<String> features;
  for (Feature f : t.features) features.push_back(FeatureName(f));
  return {{"kind", String(t.kind)},
          {"arch", String(t.arch)},
          {"warp_threads", t.warp_threads},
          {"shared_bytes_per_block", t.limits.shared_bytes_per_block},
          {"shared_bytes_per_sm", t.limits.shared_bytes_per_sm},
          {"threads_per_block", t.limits.threads_per_block},
          {"threads_per_sm", t.limits.threads_per_sm},
          {"blocks_per_sm", t.limits.blocks_per_sm},
          {"registers_per_sm", t.limits.registers_per_sm},
          {"registers_per_thread", t.limits.registers_per_thread},
          {"features", features}};
}

int64_t BlocksThatFit(const String& kind, const String& arch, int64_t threads, int64_t shared) {
  return FindTarget(kind, arch, Span()).BlocksThatFit(threads, shared);
}

Registration target_registration([] {
  RegisterFunction("target.Describe", Describe);
  RegisterFunction("target.BlocksThatFit", BlocksThatFit);
  RegisterFunction("target.RegistersAtStart", RegistersAtStart);
});

std::vector<TargetKind>& Kinds() {
  static std::vector<TargetKind> kinds = {
      {"cuda", "cuda", "arch", NvidiaTarget, NvidiaArchitectures, NvidiaFeatures},
      {"hip", "rocm", "mcpu", AmdTarget, AmdArchitectures, AmdFeatures},
  };
  return kinds;
}

template <typename Predicate>
const TargetKind* KindWhere(Predicate is_wanted) {
  const auto& kinds = Kinds();
  const auto it = FindIf(kinds, is_wanted);
  return it == kinds.end() ? nullptr : &*it;
}

[[noreturn]] void RefuseKind(const std::string& kind, const Span& span) {
  std::string all;
  for (const TargetKind& k : Kinds()) all += (all.empty() ? "" : " or ") + std::string(k.name);
  ThrowAt(span, "ValueError", "found a target of kind " + kind + ", wanted " + all);
}

FeatureRow RowOf(Feature feature) {
  for (const TargetKind& kind : Kinds()) {
    for (const FeatureRow& row : kind.features()) {
      if (row.feature == feature) return row;
    }
  }
  TVM_FFI_THROW(InternalError) << "feature " << static_cast<int>(feature) << " has no row";
  TVM_FFI_UNREACHABLE();
}

/*! Adds a kind with one architecture, whose warps have `warp_threads` lanes and whose blocks have
 * `shared_bytes` of shared memory. Its features are named as other kinds name theirs. `copies`: the
 * bytes that an asynchronous copy of a thread may have, and its intrinsics: copy, copy with a
 * condition, commit, wait; nothing where it has none. */
void AddKind(const String& name, const String& tvm_kind, const String& tvm_arch, const String& arch,
             int64_t warp_threads, int64_t shared_bytes, const Array<String>& features,
             const Array<int64_t>& bytes, const Array<String>& copies) {
  constexpr int64_t kOfBlock = 1024, kThreads = 2048, kBlocks = 16, kRegisters = 65536,
                    kOfThread = 256;
  Target target{std::string(name),
                std::string(arch),
                warp_threads,
                {shared_bytes, shared_bytes, kOfBlock, kThreads, kBlocks, 0, kRegisters, kOfThread},
                {},
                {},
                {},
                {}};
  if (!copies.empty()) {
    const auto queue = AsyncQueue::kCpAsync;
    target.copies.push_back({"cp.async",
                             MemorySpace::kGlobal,
                             MemorySpace::kShared,
                             Feature::kNone,
                             queue,
                             {bytes.begin(), bytes.end()},
                             std::string(copies[0]),
                             std::string(copies[1])});
    target.queues.push_back({queue, "asynchronous copies", std::string(copies[2]),
                             std::string(copies[3]), kNoMaxPending, false, ThreadScope::kLanes});
  }
  for (const TargetKind& kind : Kinds()) {
    for (const FeatureRow& row : kind.features()) {
      const bool wanted =
          AnyOf(features, [&](const String& f) { return row.name == std::string(f); });
      if (wanted) target.features.push_back(row.feature);
    }
  }
  RegisterTargetKind({std::string(name), std::string(tvm_kind), std::string(tvm_arch),
                      [target](const std::string& wanted, const Span&) {
                        return wanted == target.arch ? std::optional(target) : std::nullopt;
                      },
                      [target] { return target.arch; }, [] { return std::vector<FeatureRow>(); }});
}

/*! The name of the kind that a kind of TVM's stands for, and the attribute with its architecture;
 * empty texts for another one. */
Array<String> KindOf(const String& tvm_kind) {
  const TargetKind* kind =
      KindWhere([&](const TargetKind& k) { return k.tvm_kind == std::string(tvm_kind); });
  return kind ? Array<String>{kind->name, kind->tvm_arch} : Array<String>{"", ""};
}

Registration kinds([] {
  RegisterFunction("target.AddKind", AddKind);
  RegisterFunction("target.KindOf", KindOf);
});

}  // namespace

bool Target::Has(Feature feature) const {
  return feature == Feature::kNone ||
         std::find(features.begin(), features.end(), feature) != features.end();
}

bool Target::ChipHas(Feature feature) const {
  return Has(feature) || std::find(specific_features.begin(), specific_features.end(), feature) !=
                             specific_features.end();
}

const AsyncQueueRow* Target::RowOf(AsyncQueue queue) const {
  for (const AsyncQueueRow& row : queues) {
    if (row.queue == queue) return &row;
  }
  return nullptr;
}

const CopyInstruction* Target::ThreadCopy() const {
  for (const CopyInstruction& row : copies) {
    if (row.queue == AsyncQueue::kCpAsync && Has(row.feature)) return &row;
  }
  return nullptr;
}

int64_t Target::BlocksThatFit(int64_t threads, int64_t shared_bytes) const {
  const int64_t warps = (threads + warp_threads - 1) / warp_threads;
  const int64_t by_shared = limits.shared_bytes_per_sm /
                            std::max<int64_t>(shared_bytes + limits.system_bytes_per_block, 1);
  return std::min(
      {limits.blocks_per_sm, limits.threads_per_sm / (warps * warp_threads), by_shared});
}

void RegisterTargetKind(const TargetKind& kind) { Kinds().push_back(kind); }

const Target& FindTarget(const std::string& kind, const std::string& arch, const Span& span) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, Target> found;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto it = found.find({kind, arch});
  if (it != found.end()) return it->second;
  const TargetKind* row = KindWhere([&](const TargetKind& k) { return kind == k.name; });
  if (!row) RefuseKind(kind, span);
  std::optional<Target> target = row->find(arch, span);
  if (!target) {
    ThrowAt(span, "ValueError",
            "found target arch " + arch + ", wanted one of " + row->architectures() +
                ". Compile for the nearest of these that is not newer than the GPU");
  }
  return found.emplace(std::pair(kind, arch), *std::move(target)).first->second;
}

const Target& TargetOf(const PrimFunc& f) {
  static const ffi::reflection::FieldGetter kind_of("target.Target", "kind"),
      name_of("target.TargetKind", "name"), attrs_of("target.Target", "attrs");
  const Any bound = GetAttr(f, "target");
  if (bound == nullptr) ThrowBug(f->span, "TargetOf", "the function has no target");
  const auto target = bound.cast<ObjectRef>();
  const std::string name = name_of(kind_of(target).cast<ObjectRef>()).cast<String>();
  const TargetKind* kind = KindWhere([&](const TargetKind& k) { return name == k.tvm_kind; });
  if (!kind) RefuseKind(name, f->span);
  const auto attrs = attrs_of(target).cast<Map<String, Any>>();
  const auto arch = attrs.find(kind->tvm_arch);
  return FindTarget(kind->name,
                    arch == attrs.end() ? "" : std::string((*arch).second.cast<String>()), f->span);
}

std::string FeatureName(Feature feature) { return RowOf(feature).name; }

std::string FirstTargetWith(Feature feature) { return RowOf(feature).first; }
std::string TargetsWith(Feature feature) { return RowOf(feature).targets; }

}  // namespace tl
