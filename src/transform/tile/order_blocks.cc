/*!
 * OrderBlocks: blocks that run at the same time load the same rows and columns.
 *
 * In:  a tile program under thread_extent attributes whose copies have their candidates.
 * Out: the same, where a kernel whose blocks take the tiles of a matrix product in the order of the
 *      hardware, x first, takes them in panels of several rows, as by T.use_swizzle:
 *        attr(0, "threadblock_swizzle_pattern", "rasterization2DRow<16>")
 *      The blocks that run at the same time, a wave, load each row and each column once from
 *      memory; L2 has them for the others. Of 64 x 32 tiles of 128 x 256, a wave of 132 in the
 *      order of the hardware needs 4 rows and 32 columns, in panels 16 rows and 8 columns. So
 *      memory reads half as much.
 * Establishes: nothing; any order is right.
 * Left alone: kernels with an order of their own; those whose blocks may depend on each other or
 *      take different times (independent_blocks.h), for which the program's order may be the one
 *      in which they are fast; operands that L2 has room for; grids whose extents the launch
 *      decides.
 * Refuses nothing.
 */
#include <algorithm>
#include <unordered_map>

#include "../../target/mma.h"
#include "../../target/multiprocessors.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../notes.h"
#include "independent_blocks.h"
#include "register_estimate.h"
#include "shared_estimate.h"

namespace tl {
namespace {

/*! Bytes of operands below which L2 keeps them from wave to wave: about half of the 50 MB of an
 * H100 or H200, each half of which has its own copy. */
constexpr double kKeptBytes = 25e6;
/*! A wave's bytes in the order of the hardware, relative to panels, from which on these are worth
 * the numbers that a block computes. */
constexpr double kWorthIt = 1.15;

/*! Bytes that a block loads in its pipelined loops, by the axes of the grid that say which. */
class OperandBytes : public StmtExprVisitor {
 public:
  explicit OperandBytes(const Grid& grid) {
    for (size_t d = 0; d < 2; ++d) axes_[grid.vars[d].get()] = 1u << d;
  }
  /*! Of operands that blocks of a column share, and of those that blocks of a row share. */
  double by_x = 0, by_y = 0;
  /*! The number of iterations is known. */
  bool is_known = true;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const BindNode* op) final {
    axes_[op->var.get()] = AxesOf(op->value);
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    const double outside = times_;
    const bool was_pipelined = is_pipelined_;
    const auto times = AsInt(op->extent);
    is_known &= times.has_value() || !IsPipelined(op);
    times_ *= times.value_or(1);
    is_pipelined_ |= IsPipelined(op);
    Default(op);
    times_ = outside;
    is_pipelined_ = was_pipelined;
  }
  void Visit_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    if (!is_pipelined_ || !IsTileLoad(s)) return;
    const CallNode* load = AsTileOp(s);
    unsigned axes = 0;
    for (size_t i = 0; i < load->args.size(); ++i) {
      if (i != 1) axes |= AxesOf(load->args[i]);
    }
    const double bytes = times_ * BytesOfBuffer(TileRegion::From(load->args[1]).buffer);
    if (axes == 1) by_x += bytes;
    if (axes == 2) by_y += bytes;
  }

 private:
  unsigned AxesOf(const Expr& e) const {
    unsigned axes = 0;
    ForEachIn<VarNode>(e, [&](const VarNode* v) {
      const auto it = axes_.find(v);
      if (it != axes_.end()) axes |= it->second;
    });
    return axes;
  }

  std::unordered_map<const Object*, unsigned> axes_;
  double times_ = 1;
  bool is_pipelined_ = false;
};

/*! A wave of the grid, and what its blocks load. */
struct Wave {
  double columns, rows, blocks;
  double by_x, by_y;

  /*! Bytes that the wave loads, each once, where it has blocks in so many columns. */
  double Bytes(double of_columns) const {
    const double wide = std::clamp(of_columns, 1.0, columns);
    return wide * by_x + std::clamp(blocks / wide, 1.0, rows) * by_y;
  }
  double InPanels(int64_t panel) const { return Bytes(blocks / panel); }
};

/*! Rows of the panels in which a wave loads least, all of them as high as can be: the last panel
 * has the rows that are left. */
int64_t BestPanel(const Wave& wave) {
  int64_t best = 1;
  for (int64_t panel = 2; panel <= wave.rows && panel <= wave.blocks; ++panel) {
    if (wave.InPanels(panel) < wave.InPanels(best)) best = panel;
  }
  const int64_t rows = int64_t(wave.rows), panels = (rows + best - 1) / best;
  return (rows + panels - 1) / panels;
}

/*! Blocks that run at the same time. */
int64_t BlocksOfWave(const KernelInfo& info, const Stmt& kernel) {
  const int64_t loaded = SharedEstimate(GetRef<Stmt>(info.block)).LoadedBytes(kernel);
  const int64_t each =
      std::min(info.target->BlocksThatFit(info.threads + kWarpGroupThreads, loaded),
               BlocksByRegisters(info, WidestAccumulators(info)));
  return std::max<int64_t>(1, each) * MostMultiprocessors(*info.target);
}

/*! The kernel with the attribute of T.use_swizzle around its statements. */
class WithOrder : public StmtExprMutator {
 public:
  explicit WithOrder(const std::string& order) : order_(order) {}

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const SBlockNode* op) final {
    auto block = make_object<SBlockNode>(*op);
    block->body = MakeAttr(MakeInt(0), kSwizzle, StringOf(order_), op->body);
    return SBlock(block);
  }

 private:
  const std::string order_;
};

/*! The kernel with an order; undefined where it stays. */
Stmt Ordered(const AttrStmtNode* op, const PrimFunc& f, std::string* note) {
  const Stmt kernel = GetRef<Stmt>(op);
  const Launch launch = ReadLaunch(kernel);
  if (launch.is_special || !launch.order.empty() || launch.grid.vars.size() < 2) return Stmt();
  const auto columns = AsInt(launch.grid.extents[0]), rows = AsInt(launch.grid.extents[1]);
  if (!columns || !rows || *columns < 2 || *rows < 2) return Stmt();
  const KernelInfo info = ReadKernelInfo(kernel, f);
  if (!MayHaveProducer(info) || !MultiplyIndependently(launch.grid, kernel)) return Stmt();
  OperandBytes operands(launch.grid);
  operands(kernel);
  const double all = *columns * operands.by_x + *rows * operands.by_y;
  if (!operands.is_known || all < kKeptBytes) return Stmt();
  if (operands.by_x == 0 || operands.by_y == 0) return Stmt();
  const Wave wave{double(*columns), double(*rows), double(BlocksOfWave(info, kernel)),
                  operands.by_x, operands.by_y};
  const int64_t panel = BestPanel(wave);
  const double before = wave.Bytes(*columns), after = wave.InPanels(panel);
  if (before < kWorthIt * after) return Stmt();
  constexpr double kMega = 1e6;
  *note = Where(kernel->span) + ": T.Kernel: blocks take tiles in panels of " +
          std::to_string(panel) + " rows: those that run at the same time load " +
          std::to_string(int(after / kMega)) + " MB, not " + std::to_string(int(before / kMega));
  return WithOrder("rasterization2DRow<" + std::to_string(panel) + ">").Mutate(kernel);
}

PrimFunc OrderBlocks(PrimFunc f) {
  if (MostMultiprocessors(TargetOf(f)) == 0 || GetAttr(f, "tilelang_team") != nullptr) return f;
  Array<String> notes;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    std::string note;
    const Stmt ordered = Ordered(op, f, &note);
    if (ordered.defined()) notes.push_back(note);
    return ordered.defined() ? ordered : GetRef<Stmt>(op);
  });
  return WithNotes(out, notes);
}

Registration order_blocks_registration([] { RegisterPass("OrderBlocks", OrderBlocks); });

}  // namespace
}  // namespace tl
