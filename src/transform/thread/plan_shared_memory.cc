/*!
 * PlanSharedMemory: a place for every dynamic shared buffer.
 *
 * In:  a thread program without blocks; allocations are AllocBuffer statements, asynchronous copies
 *      are explicit.
 * Out: the same. Each AllocBuffer of scope `shared.dyn`, and of mbarriers, is annotated with
 *      `tl.shared_offset`, its byte offset in the one dynamic shared array of its kernel. Buffers
 * of scope `shared` stay arrays of their own. `tl.rewrites` and `tl.role_loop` are gone.
 * Establishes: buffers whose lives overlap have no byte in common; an mbarrier shares bytes with
 *      nothing. Offsets are multiples of 128 bytes, or of a larger alignment of the buffer or of
 * its swizzle; those of mbarriers are multiples of 8. ThreadSync orders what shares bytes. Refuses:
 * more shared memory than a block of the target may have (SharedMemoryError, with a table of the
 * buffers).
 *
 * Tiles whose extents the launch decides come last, in the order of their allocation. They share
 * bytes with nothing, and the offset of a second one is an expression. The launch checks the sum.
 *
 * If memory is short, more buffers share bytes at the price of waits and mbarriers
 * (shared_reuse.h), which are then in the output; function attribute `tl.notes` has a line for each
 * pair. Memory is short if a block does not fit, or if fewer blocks fit on a multiprocessor than
 * the program wants there. It also counts as short if tiles that are used once, outside of loops,
 * keep a second block from fitting. Of the prices, an early wait in a loop for an asynchronous
 * operation is given back as long as there is room for it.
 *
 * Each buffer gets the lowest offset that no conflicting buffer has. Buffers are taken in the order
 * of their allocation, or the largest first, whichever needs less. A few small buffers conflict
 * with all, as long as that fits: sharing their bytes would take barriers. With
 * `tl.enable_aggressive_shared_memory_merge` they share bytes as others do; with
 * `tl.disable_shared_memory_reuse` all buffers conflict.
 * `tl.debug_merge_shared_memory_allocations` logs the table.
 */
#include <algorithm>
#include <map>

#include "../../analysis/kernel_facts.h"
#include "../../analysis/shared_memory.h"
#include "../../op/intrinsics.h"
#include "../../op/launch_sized.h"
#include "../../op/tensor_map_spec.h"
#include "../../op/views.h"
#include "../../target/target.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"
#include "shared_lifetime.h"
#include "shared_reuse.h"

namespace tl {
namespace {

constexpr int64_t kMinAlignment = 128;
/*! PTX ISA, Size and alignment of mbarrier object. */
constexpr int64_t kBarrierAlignment = 8;
/*! CUDA Programming Guide, "Shared Memory": more than 48 KiB a block has to be dynamic. */
constexpr int64_t kMaxStaticBytes = 48 * 1024;

/*! Sharing the bytes of so small a buffer saves less than the barrier costs: buffers of a
 * cross-warp reduction have bytes of their own. */
constexpr int64_t kSmallBytes = 512;
constexpr int64_t kAllSmallBytes = 4096;

/*! Bytes of a tile whose extents the launch decides, in int32. */
Expr SizeAtLaunch(const AllocBufferNode* alloc) {
  const BufferTypeNode* type = BufferOf(alloc->buffer);
  const DLDataType t = type->dtype->dtype;
  Expr elements = MakeInt(1);
  // A call may pass a scalar that is below 0.
  for (const Expr& e : type->shape) {
    elements = elements * (AsInt(e) ? CastTo(kInt32, e) : MaxOf(CastTo(kInt32, e), MakeInt(0)));
  }
  const int64_t bits = int64_t(t.bits) * t.lanes;
  const Expr bytes = bits % 8 ? FloorDivOf(elements * bits + 7, 8) : elements * (bits / 8);
  return Analyzer().Simplify(bytes);
}

/*! A shared buffer of one kernel. */
struct Use {
  const AllocBufferNode* alloc;
  int64_t bytes;
  Lifetime life;
  int64_t offset = 0;
  bool apart = false;                 // it shares bytes with nothing
  bool for_free = false;              // it shares bytes where that takes no waits
  int64_t async_proxy_alignment = 1;  // what TMA and wgmma want

  bool IsStatic() const { return ScopeOf(alloc->buffer) == "shared"; }
  bool IsBarrier() const { return tl::IsBarrier(alloc->buffer); }
  int64_t Alignment() const {
    if (IsBarrier()) return kBarrierAlignment;
    const int64_t own =
        std::max<int64_t>(async_proxy_alignment, BufferOf(alloc->buffer)->data_alignment);
    return std::max(kMinAlignment, own);
  }
  int64_t End() const { return offset + bytes; }
  bool SharesBytes(const Use& o) const {
    return !IsStatic() && !o.IsStatic() && offset < o.End() && o.offset < End();
  }
};

class AllocationCollector : public StmtExprVisitor {
 public:
  explicit AllocationCollector(const Stmt& kernel) : views_(kernel) {
    Visit(kernel);
    for (Use& use : uses) {
      auto it = alignments_.find(use.alloc->buffer.get());
      if (it != alignments_.end()) use.async_proxy_alignment = it->second;
    }
  }
  std::vector<Use> uses;
  std::vector<const AllocBufferNode*> sized_at_launch;

 protected:
  // The exchange of 16-byte chunks repeats after 8 rows (CUDA Programming Guide, Tensor Memory
  // Access, "Swizzle"; PTX ISA, Matrix Descriptor Format).
  void Visit_(const CallNode* op) override {
    int64_t swizzle = 0;
    for (const Expr& arg : op->args) {
      if (const auto map = TensorMapSpec::FromOperand(arg)) swizzle = map->swizzle;
    }
    if (IsCallTo(op, kWgmmaDescriptor)) swizzle = ToInt(op->args[0]);
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (IsShared(p.buffer)) Align(p.buffer, swizzle);
    }
    if (IsCallTo(op, kInitializeWgmmaDescriptor)) {
      Align(AsAddressOf(op->args[4])->source.as_or_throw<Var>(), DescriptorSwizzle(op));
    }
    Default(op);
  }
  void Visit_(const AllocBufferNode* op) override {
    if (IsSizedAtLaunch(op->buffer)) {
      sized_at_launch.push_back(op);
    } else if (IsShared(op->buffer) || IsBarrier(op->buffer)) {
      uses.push_back({op, SharedBytes(op), {0, INT64_MAX}});
    }
  }
  void Visit_(const SBlockNode* op) override {
    ThrowBug(op->span, "PlanSharedMemory", "found a block, wanted LowerOpaqueBlock before");
  }

 private:
  void Align(const Var& buffer, int64_t swizzle) {
    if (swizzle == 0) return;
    int64_t& alignment = alignments_[views_.RootOf(buffer).get()];
    alignment = std::max(alignment, 8 * swizzle);
  }

  const Views views_;
  std::unordered_map<const Object*, int64_t> alignments_;
};

/*! The places of one kernel's buffers. */
class Plan {
 public:
  Plan(const Stmt& kernel, int64_t limit) : kernel_(kernel) {
    AllocationCollector found(kernel);
    uses_ = std::move(found.uses);
    sized_at_launch_ = std::move(found.sized_at_launch);
    const bool reuses = !PassConfigFlag("tl.disable_shared_memory_reuse", false);
    if (reuses) NoteLives();
    using Price = SharedReuse::Price;
    for (Price price : {Price::kImpossible, Price::kWaits, Price::kHandshake}) {
      if (price != Price::kImpossible && !reuses) return;
      if (price == Price::kWaits) reuse_.emplace(kernel);
      price_ = price;
      for (bool small_apart : {true, false}) {
        small_apart_ = small_apart;
        KeepSmallApart(small_apart);
        PlaceAll();
        if (Bytes() > limit) continue;
        TakeBack(limit);
        return;
      }
    }
  }

  const std::vector<Use>& uses() const { return uses_; }
  int64_t DynamicBytes() const { return dynamic_bytes_; }
  int64_t StaticBytes() const {
    int64_t bytes = 0;
    for (const Use& use : uses_) {
      if (use.IsStatic()) PlaceStatic(use.bytes, &bytes);
    }
    return bytes;
  }
  int64_t Bytes() const { return StaticBytes() + dynamic_bytes_; }

  /*! What was bought is a wait and a barrier behind the kernel's loops, and no more shares bytes.
   */
  bool IsCheap() const {
    return !bought_.empty() && small_apart_ &&
           AllOf(bought_, [&](const std::pair<size_t, size_t>& p) {
             return PriceOf(uses_[p.first], uses_[p.second]) == SharedReuse::Price::kWaits &&
                    reuse_->IsUsedOnce(uses_[p.second].alloc->buffer.get());
           });
  }
  /*! Bytes of the largest buffer. */
  int64_t Largest() const {
    int64_t bytes = 0;
    for (const Use& use : uses_) bytes = std::max(bytes, use.bytes);
    return bytes;
  }

  /*! Where each buffer of the dynamic array is. */
  std::unordered_map<const Object*, Expr> Offsets() const {
    std::unordered_map<const Object*, Expr> offsets;
    for (const Use& use : uses_) {
      if (!use.IsStatic()) offsets[use.alloc] = MakeInt(use.offset);
    }
    Expr end = MakeInt(dynamic_bytes_);
    Analyzer analyzer;
    for (const AllocBufferNode* tile : sized_at_launch_) {
      const int64_t alignment =
          std::max<int64_t>(kMinAlignment, BufferOf(tile->buffer)->data_alignment);
      const Expr begin =
          analyzer.Simplify(FloorDivOf(end + (alignment - 1), alignment) * alignment);
      offsets[tile] = begin;
      end = begin + SizeAtLaunch(tile);
    }
    return offsets;
  }

  /*! The kernel with what orders the buffers in the same bytes. */
  Stmt WithWaits(const Target& target) const {
    return reuse_ ? reuse_->WithWaits(kernel_, handshakes_at_, target) : kernel_;
  }

  /*! What waits buffers in the same bytes cost. */
  std::vector<std::string> Notes() const {
    // The buffers in front of each one, for each price.
    std::map<std::pair<size_t, std::string>, std::string> firsts;
    for (const auto& [i, k] : bought_) {
      std::string price = ", behind a barrier";
      const std::string more = reuse_->Unawaited(uses_[i].alloc->buffer.get());
      if (!more.empty()) price += " and a wait for " + more;
      if (PriceOf(uses_[i], uses_[k]) == SharedReuse::Price::kHandshake) {
        price += "; the role that fills these bytes waits for an mbarrier until they are free";
      }
      std::string& names = firsts[{k, price}];
      names += (names.empty() ? "" : ", ") + std::string(uses_[i].alloc->buffer->name);
    }
    std::vector<std::string> notes;
    for (const auto& [key, names] : firsts) {
      const Var& buffer = uses_[key.first].alloc->buffer;
      const std::string note = std::string(buffer->name) + " is in bytes of " + names + key.second;
      notes.push_back(buffer->span.defined() ? Where(buffer->span) + ": " + note : note);
    }
    return notes;
  }

  std::string Table() const {
    std::string table;
    for (const Use& use : uses_) table += "\n  " + Row(use);
    for (const AllocBufferNode* tile : sized_at_launch_) {
      table += "\n  bytes that the launch decides: " + std::string(tile->buffer->name);
    }
    return table;
  }

 private:
  void KeepSmallApart(bool apart) {
    apart = apart && !PassConfigFlag("tl.enable_aggressive_shared_memory_merge", false);
    int64_t bytes = 0;
    for (Use& use : uses_) {
      use.apart = false;
      if (!apart || use.IsStatic() || use.IsBarrier() || use.bytes > kSmallBytes ||
          use.life.last < 0) {
        continue;
      }
      bytes += use.Alignment() * ((use.bytes + use.Alignment() - 1) / use.Alignment());
      use.apart = bytes <= kAllSmallBytes;
    }
  }

  /*! Gives each buffer its place, and what is bought by waits its price. */
  void PlaceAll() {
    std::vector<Use*> in_order, by_size;
    for (Use& use : uses_) {
      if (!use.IsStatic()) in_order.push_back(&use);
    }
    // mbarriers fit between the end of one and the beginning of another.
    const auto barriers = std::stable_partition(in_order.begin(), in_order.end(),
                                                [](const Use* u) { return !u->IsBarrier(); });
    by_size = in_order;
    std::stable_sort(by_size.begin(), by_size.begin() + (barriers - in_order.begin()),
                     [](const Use* a, const Use* b) { return a->bytes > b->bytes; });
    const int64_t first_come = AssignOffsets(in_order);
    dynamic_bytes_ = AssignOffsets(by_size);
    if (first_come <= dynamic_bytes_) dynamic_bytes_ = AssignOffsets(in_order);
    if (reuse_) Buy();
  }

  /*! Gives back what was bought in loops at the price of an early wait for an asynchronous
   * operation, as long as there is room. */
  void TakeBack(int64_t limit) {
    for (Use& use : uses_) {
      const bool waits = AnyOf(bought_, [&](const auto& pair) {
        const Object* next = uses_[pair.second].alloc->buffer.get();
        return &uses_[pair.first] == &use && !reuse_->IsUsedOnce(next);
      });
      if (!waits || reuse_->Unawaited(use.alloc->buffer.get()).empty()) continue;
      use.for_free = true;
      PlaceAll();
      if (Bytes() <= limit) continue;
      use.for_free = false;
      PlaceAll();
    }
  }

  void Buy() {
    bought_.clear();
    reuse_->ShareNothing();
    for (size_t i = 0; i < uses_.size(); ++i) {
      for (size_t k = 0; k < uses_.size(); ++k) {
        if (i == k || !uses_[i].SharesBytes(uses_[k]) || !AreInTheWay(uses_[i], uses_[k])) continue;
        const Object *a = uses_[i].alloc->buffer.get(), *b = uses_[k].alloc->buffer.get();
        if (!reuse_->IsBefore(a, b)) continue;
        bought_.emplace_back(i, k);
        reuse_->Share(a, b);
      }
    }
    if (reuse_->HandshakeBytes() == 0) return;
    handshakes_at_ =
        (dynamic_bytes_ + kBarrierAlignment - 1) / kBarrierAlignment * kBarrierAlignment;
    dynamic_bytes_ = handshakes_at_ + reuse_->HandshakeBytes();
  }

  void NoteLives() {
    const auto lives = SharedLifetimes(kernel_);
    for (Use& use : uses_) {
      if (use.IsBarrier()) continue;
      auto it = lives.find(use.alloc->buffer.get());
      // What nothing touches is in nobody's way.
      use.life = it == lives.end() ? Lifetime{0, -1} : it->second;
    }
  }

  /*! Without more waits than the program has. */
  static bool AreInTheWay(const Use& a, const Use& b) {
    return a.apart || b.apart || a.life.Overlaps(b.life);
  }

  SharedReuse::Price PriceOf(const Use& a, const Use& b) const {
    if (!reuse_ || a.apart || b.apart || a.for_free || b.for_free || a.IsBarrier() ||
        b.IsBarrier()) {
      return SharedReuse::Price::kImpossible;
    }
    return reuse_->PriceOf(a.alloc->buffer.get(), b.alloc->buffer.get());
  }

  bool MayShare(const Use& a, const Use& b) const {
    if (!AreInTheWay(a, b)) return true;
    const SharedReuse::Price price = PriceOf(a, b);
    return price != SharedReuse::Price::kImpossible && price <= price_;
  }

  /*! Gives each buffer its place; returns the bytes that all need together. */
  int64_t AssignOffsets(const std::vector<Use*>& order) const {
    std::vector<const Use*> placed;
    int64_t bytes = 0;
    for (Use* use : order) {
      use->offset = 0;
      for (const Use* other : placed) {
        if (use->offset >= other->End() || other->offset >= use->End()) continue;
        if (MayShare(*use, *other)) continue;
        const int64_t alignment = use->Alignment();
        use->offset = (other->End() + alignment - 1) / alignment * alignment;
      }
      placed.push_back(use);
      std::sort(placed.begin(), placed.end(),
                [](const Use* a, const Use* b) { return a->offset < b->offset; });
      bytes = std::max(bytes, use->End());
    }
    return bytes;
  }

  std::string Row(const Use& use) const {
    const BufferTypeNode* type = BufferOf(use.alloc->buffer);
    std::string shape;
    for (const Expr& extent : type->shape) {
      shape += (shape.empty() ? "" : ", ") + std::to_string(ToInt(extent));
    }
    std::string row = std::to_string(use.bytes) + " bytes" +
                      (use.IsStatic() ? "" : " at " + std::to_string(use.offset)) + ": " +
                      std::string(use.alloc->buffer->name) + ", " + DTypeName(type->dtype->dtype) +
                      "[" + shape + "]";
    std::string sharing;
    for (const Use& other : uses_) {
      if (&other == &use || !use.SharesBytes(other)) continue;
      sharing +=
          (sharing.empty() ? ", in the place of " : ", ") + std::string(other.alloc->buffer->name);
    }
    row += sharing;
    if (use.alloc->buffer->span.defined()) row += ", " + Where(use.alloc->buffer->span);
    return row;
  }

  const Stmt kernel_;
  std::vector<Use> uses_;
  std::vector<const AllocBufferNode*> sized_at_launch_;
  int64_t dynamic_bytes_ = 0;
  /*! What waits buy, where the program's own do not make all buffers fit: up to that price. */
  std::optional<SharedReuse> reuse_;
  SharedReuse::Price price_ = SharedReuse::Price::kImpossible;
  bool small_apart_ = false;
  std::vector<std::pair<size_t, size_t>> bought_;  // of uses_, the first one first
  int64_t handshakes_at_ = 0;
};

[[noreturn]] void Refuse(const Plan& plan, const Span& span, const std::string& arch,
                         const std::string& what, int64_t found, int64_t limit,
                         const std::string& repair) {
  ThrowAt(span, "SharedMemoryError",  // of tilelang/engine/errors.py
          "found " + std::to_string(found) + " bytes of " + what +
              " in one block, wanted at most " + std::to_string(limit) + " (" + arch + "). " +
              repair + "." + plan.Table());
}

void CheckFits(const Plan& plan, const Span& span, const Target& target) {
  const int64_t total = plan.StaticBytes() + plan.DynamicBytes();
  if (plan.StaticBytes() > kMaxStaticBytes) {
    Refuse(plan, span, target.arch, "static shared memory", plan.StaticBytes(), kMaxStaticBytes,
           "Allocate it with scope \"shared.dyn\"");
  }
  if (total > target.limits.shared_bytes_per_block) {
    Refuse(plan, span, target.arch, "shared memory", total, target.limits.shared_bytes_per_block,
           "Make the tiles smaller or num_stages lower");
  }
}

/*! Writes the places, and takes away what was said for this pass. */
class OffsetWriter : public StmtExprMutator {
 public:
  std::unordered_map<const Object*, Expr> offsets;

 protected:
  Stmt Mutate_(const AttrStmtNode* op) override {
    return op->attr_key == kRewrites ? Mutate(op->body) : Default<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) override {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    if (op->annotations.count(kRoleLoop)) loop.CopyOnWrite()->annotations.erase(kRoleLoop);
    return loop;
  }
  Stmt Mutate_(const AllocBufferNode* op) override {
    auto it = offsets.find(op);
    if (it == offsets.end()) return GetRef<Stmt>(op);
    AllocBuffer planned = GetRef<AllocBuffer>(op);
    const auto constant = AsInt(it->second);
    planned.CopyOnWrite()->annotations.Set(kSharedOffset,
                                           constant ? Any(*constant) : Any(it->second));
    if (IsSizedAtLaunch(op->buffer)) {
      const Expr end = Analyzer().Simplify(it->second + SizeAtLaunch(op));
      planned.CopyOnWrite()->annotations.Set(kSharedEnd, end);
    }
    return planned;
  }
};

/*! What a kernel says of how many of its blocks share a multiprocessor. */
struct Residency : StmtExprVisitor {
  int64_t blocks = 1;
  int64_t threads = 1;
  void Visit_(const AttrStmtNode* op) override {
    if (op->attr_key == kMinBlocks) blocks = std::max<int64_t>(blocks, ToInt(op->value));
    if (op->attr_key == kThreadExtent) {
      const std::string tag = op->node.cast<IterVar>()->thread_tag;
      if (tag.rfind("threadIdx", 0) == 0) threads *= AsInt(op->value).value_or(1);
    }
    Default(op);
  }
};

/*! What each of so many blocks may have. */
int64_t BytesOfBlock(int64_t blocks, const Target& target) {
  const int64_t of_system =
      target.limits.shared_bytes_per_sm - target.limits.shared_bytes_per_block;
  return target.limits.shared_bytes_per_sm / blocks - of_system;
}

/*! With room for the blocks that the program wants, or else for one; and for a second one, which
 * works while the first one ends, where tiles that are used once, behind the loops, give it by
 * having bytes of what the loops have left. */
Plan PlanOf(const Stmt& kernel, const Target& target) {
  Residency residency;
  residency(kernel);
  const int64_t wanted = BytesOfBlock(residency.blocks, target);
  const Plan plan(kernel, wanted);
  const bool fits = plan.Bytes() <= wanted || wanted == target.limits.shared_bytes_per_block;
  if (!fits) return Plan(kernel, target.limits.shared_bytes_per_block);
  const int64_t less = BytesOfBlock(2, target);
  const bool by_bytes = target.BlocksThatFit(residency.threads, plan.Bytes()) == 1 &&
                        target.BlocksThatFit(residency.threads, less) > 1;
  if (!by_bytes || plan.Bytes() - plan.Largest() > less) return plan;
  const Plan smaller(kernel, less);
  return smaller.Bytes() <= less && smaller.IsCheap() ? smaller : plan;
}

Stmt PlanKernel(const Stmt& kernel, const Target& target, Array<String>* notes) {
  const Plan plan = PlanOf(kernel, target);
  OffsetWriter writer;
  writer.offsets = plan.Offsets();
  if (plan.uses().empty()) return writer.Mutate(kernel);
  const Span span = kernel->span.defined() ? kernel->span : plan.uses()[0].alloc->buffer->span;
  CheckFits(plan, span, target);
  if (PassConfigFlag("tl.debug_merge_shared_memory_allocations", false)) {
    LogAt(LogLevel::kInfo, kernel->span,
          std::to_string(plan.DynamicBytes()) + " bytes of dynamic shared memory:" + plan.Table());
  }
  for (const std::string& note : plan.Notes()) notes->push_back(note);
  return writer.Mutate(plan.WithWaits(target));
}

PrimFunc PlanSharedMemory(PrimFunc f) {
  Array<String> found;
  const PrimFunc planned = ForEachKernel(f, [&, &target = TargetOf(f)](const AttrStmtNode* op) {
    return PlanKernel(GetRef<Stmt>(op), target, &found);
  });
  return WithNotes(planned, found);
}

TL_REGISTER_PASS(PlanSharedMemory);

}  // namespace

int64_t SharedBytes(const AllocBufferNode* alloc) {
  const BufferTypeNode* type = BufferOf(alloc->buffer);
  const DLDataType t = type->dtype->dtype;
  int64_t bits = int64_t(t.bits) * t.lanes;
  for (const Expr& extent : type->shape) bits *= ToInt(extent);
  return (bits + 7) / 8;
}

Expr SharedBegin(const AllocBufferNode* alloc) {
  const auto it = alloc->annotations.find(kSharedOffset);
  if (it == alloc->annotations.end()) {
    ThrowBug(alloc->span, "PlanSharedMemory",
             "found shared buffer " + std::string(alloc->buffer->name) + " without an offset");
  }
  const auto offset = IntAnnotation(alloc->annotations, kSharedOffset);
  return offset ? MakeInt(*offset) : (*it).second.cast<Expr>();
}

}  // namespace tl
