/*!
 * PlanSharedMemory: a place for every dynamic shared buffer.
 *
 * Input: a thread program without blocks, allocations being AllocBuffer statements.
 * Output: the same; each AllocBuffer of scope `shared.dyn` is annotated with `tl.shared_offset`,
 * its byte offset in the one dynamic shared array of its kernel. Buffers of scope `shared` stay
 * arrays of their own. Establishes: offsets are multiples of 128 bytes and buffers of a kernel do
 * not overlap. There is no reuse: two buffers that are never live together still have two places.
 * Refuses: more shared memory than a block of the target may have (ValueError with a table of the
 * buffers).
 */
#include "../../target/chip.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "shared_memory.h"

namespace tl {
namespace {

constexpr int64_t kAlignment = 128;
/*! CUDA Programming Guide, "Shared Memory": more than 48 KiB a block has to be dynamic. */
constexpr int64_t kMaxStaticBytes = 48 * 1024;

struct Use {
  Var buffer;
  int64_t bytes;
};

std::string Describe(const Use& use) {
  std::string shape;
  for (const Expr& extent : BufferOf(use.buffer)->shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(ToInt(extent));
  }
  std::string line = "\n  " + std::to_string(use.bytes) +
                     " bytes: " + std::string(use.buffer->name) + ", " +
                     DTypeName(BufferOf(use.buffer)->dtype->dtype) + "[" + shape + "]";
  if (use.buffer->span.defined()) line += ", " + Where(use.buffer->span);
  return line;
}

class Planner : public StmtExprMutator {
 public:
  explicit Planner(const PrimFunc& f) : function_(f) {}

 protected:
  using StmtExprMutator::Mutate_;

  Stmt Mutate_(const AttrStmtNode* op) override {
    if (in_kernel_ || op->attr_key != "thread_extent") return Default<Stmt>(op);
    in_kernel_ = true;
    dynamic_bytes_ = static_bytes_ = 0;
    uses_.clear();
    Stmt planned = Default<Stmt>(op);
    in_kernel_ = false;
    CheckFits(op->span);
    return planned;
  }

  Stmt Mutate_(const SBlockNode* op) override {
    ThrowBug(op->span, "PlanSharedMemory", "found a block, wanted LowerOpaqueBlock before");
  }

  Stmt Mutate_(const AllocBufferNode* op) override {
    if (!IsShared(op->buffer)) return GetRef<Stmt>(op);
    const int64_t bytes = SharedBytes(op);
    uses_.push_back({op->buffer, bytes});
    if (ScopeOf(op->buffer) == "shared") {
      static_bytes_ += bytes;
      return GetRef<Stmt>(op);
    }
    const int64_t offset = (dynamic_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    dynamic_bytes_ = offset + bytes;
    AllocBuffer planned = GetRef<AllocBuffer>(op);
    planned.CopyOnWrite()->annotations.Set(kSharedOffset, offset);
    return planned;
  }

 private:
  void CheckFits(const Span& span) {
    if (uses_.empty()) return;
    const Chip& chip = ChipOf(TargetArch(function_), span);
    const int64_t total = static_bytes_ + dynamic_bytes_;
    if (static_bytes_ > kMaxStaticBytes) {
      Refuse(span, "static shared memory", static_bytes_, kMaxStaticBytes,
             "Allocate it with scope \"shared.dyn\"");
    }
    if (total > chip.shared_bytes_per_block) {
      Refuse(span, "shared memory", total, chip.shared_bytes_per_block,
             "Make the tiles smaller or num_stages lower");
    }
  }

  void Refuse(const Span& span, const std::string& what, int64_t found, int64_t limit,
              const std::string& repair) {
    std::string table;
    for (const Use& use : uses_) table += Describe(use);
    ThrowAt(span.defined() ? span : uses_[0].buffer->span, "ValueError",
            "found " + std::to_string(found) + " bytes of " + what +
                " in one block, wanted at most " + std::to_string(limit) + " (sm_" +
                std::to_string(TargetArch(function_)) + "). " + repair + "." + table);
  }

  const PrimFunc& function_;
  bool in_kernel_ = false;
  int64_t dynamic_bytes_ = 0;
  int64_t static_bytes_ = 0;
  std::vector<Use> uses_;
};

PrimFunc PlanSharedMemory(PrimFunc f) { return WithBody(f, Planner(f).Mutate(f->body)); }

Registration registration([] { RegisterPass("PlanSharedMemory", PlanSharedMemory); });

}  // namespace

int64_t SharedBytes(const AllocBufferNode* alloc) {
  const BufferTypeNode* type = BufferOf(alloc->buffer);
  const DLDataType t = type->dtype->dtype;
  int64_t bits = int64_t(t.bits) * t.lanes;
  for (const Expr& extent : type->shape) {
    if (!AsInt(extent)) {
      ThrowAt(alloc->buffer->span, "ValueError",
              "found a symbolic extent in the shape of shared buffer " +
                  std::string(alloc->buffer->name) +
                  ", wanted constants. Give the tile a constant shape");
    }
    bits *= ToInt(extent);
  }
  return (bits + 7) / 8;
}

}  // namespace tl
