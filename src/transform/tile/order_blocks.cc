/*!
 * OrderBlocks: blocks with most work start first.
 *
 * In:  a tile program under thread_extent attributes.
 * Out: the same. Where loops with work have more iterations the larger an index of the block is
 *      (causal attention: rows further down see more keys), an attribute
 * `threadblock_swizzle_pattern` around the kernel's body lets this index go from its last value to
 * 0 as blocks start. Establishes: nothing. A chip starts blocks in the order of their index, and
 * the next one where one ends. If those that start last are the longest, most multiprocessors wait
 * for them (Graham 1969, "longest processing time first"). Left alone: kernels whose blocks may
 * notice their order: atomic operations, signals and barriers between blocks, loops until memory
 * says something, functions of the user's; clusters, and kernels with an order of their own.
 * Refuses nothing.
 */
#include <array>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../analysis/trend.h"
#include "../../op/intrinsics.h"
#include "../../op/tile_op.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"

namespace tl {
namespace {

constexpr std::array<const char*, 3> kBlockIndices = {"blockIdx.x", "blockIdx.y", "blockIdx.z"};

/*! Operators whose blocks do not notice each other. */
bool IsOfOneBlock(const CallNode* op) {
  static const std::unordered_set<std::string> names = {
      "copy",         "tma_copy",         "fill",      "gemm",
      "gemm_sp",      "gemm_blockscaled", "reduce",    "scan",
      "reducer_init", "reducer_finalize", "transpose", "im2col",
      "tma_im2col",   "wgmma_wait"};
  const std::string prefix = "tl.tileop.", name(OpOf(op)->name);
  return names.count(name.substr(prefix.size())) != 0;
}

/*! What decides of a kernel. */
class OrderReader : public StmtExprVisitor {
 public:
  OrderReader() : trends_(&analyzer_) { work_.fill(Trend::kConstant); }

  /*! By the dimensions of the grid: whether blocks start from the last index on. */
  std::array<bool, 3> Reversed() const {
    std::array<bool, 3> found = {};
    for (size_t d = 0; d < work_.size(); ++d) found[d] = !notices_ && work_[d] == Trend::kUp;
    return found;
  }
  /*! The first loop that the order is chosen for. */
  Span loop;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const IterVar axis = op->node.cast<IterVar>();
      analyzer_.BindThread(op);
      for (size_t d = 0; d < kBlockIndices.size(); ++d) {
        if (std::string(axis->thread_tag) == kBlockIndices[d]) indices_[d] = axis->var;
      }
    }
    notices_ |= op->attr_key == kSwizzle || op->attr_key == kClusterDims;
    Visit(op->body);
  }
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kSerial && HasWork(op->body)) {
      for (size_t d = 0; d < indices_.size(); ++d) {
        if (!indices_[d].defined()) continue;
        const Trend own = trends_.Of(op->extent, indices_[d]);
        work_[d] = SumOf(work_[d], own);
        if (own == Trend::kUp && !loop.defined()) loop = op->span;
      }
    }
    analyzer_.BindLoop(op);
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    trends_.Name(op);
    Default(op);
  }
  void Visit_(const WhileNode* op) final {
    notices_ = true;
    Default(op);
  }
  void Visit_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call) {
      const bool jumps = IsBreak(s) || IsContinue(s) || LeavesEarly(s) || IsNothing(s);
      notices_ |= !jumps && !IsCallTo(op->value, "tirx.assume");
      return;
    }
    notices_ |= !IsOfOneBlock(call);
    for (const Expr& arg : call->args) Visit(arg);
  }
  void Visit_(const CallNode* op) final {
    notices_ |= !IsElementwise(op) && !IsIfThenElse(op);
    Default(op);
  }

 private:
  static bool HasWork(const Stmt& body) {
    return HasNode<EvaluateNode>(
               body,
               [](const EvaluateNode* op) { return AsTileOp(GetRef<Stmt>(op)) != nullptr; }) ||
           HasNode<ForNode>(body, [](const ForNode* op) { return op->kind == ForKind::kParallel; });
  }

  Analyzer analyzer_;
  Trends trends_;
  std::array<Var, 3> indices_;
  std::array<Trend, 3> work_;
  bool notices_ = false;
};

/*! The kernel with an attribute around the body of its block. */
class AttributeWriter : public StmtExprMutator {
 public:
  explicit AttributeWriter(std::string pattern) : pattern_(std::move(pattern)) {}

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const SBlockNode* op) final {
    auto block = make_object<SBlockNode>(*op);
    block->body = MakeAttr(MakeInt(0), kSwizzle, StringOf(pattern_), op->body);
    return SBlock(block);
  }

 private:
  std::string pattern_;
};

PrimFunc OrderBlocks(PrimFunc f) {
  Array<String> notes;
  f = ForEachKernel(f, [&](const AttrStmtNode* op) -> Stmt {
    const Stmt kernel = GetRef<Stmt>(op);
    OrderReader reader;
    reader(kernel);
    std::string sizes, names;
    for (size_t d = 0; d < kBlockIndices.size(); ++d) {
      const bool reversed = reader.Reversed()[d];
      sizes += std::string(d ? ", " : "") + (reversed ? "1" : "0");
      if (reversed) names += std::string(names.empty() ? "" : ", ") + kBlockIndices[d];
    }
    if (names.empty()) return kernel;
    notes.push_back(Where(reader.loop) + ": blocks start from the last " + names +
                    " on, since these have most iterations");
    return AttributeWriter("last_first<" + sizes + ">").Mutate(kernel);
  });
  return WithNotes(std::move(f), notes);
}

Registration order_blocks_registration([] { RegisterPass("OrderBlocks", OrderBlocks); });

}  // namespace
}  // namespace tl
