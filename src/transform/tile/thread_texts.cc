#include "thread_texts.h"

#include <cstdio>
#include <string>
#include <unordered_map>

#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"

namespace tl {
namespace {

std::string TextArgument(const CallNode* call, size_t i) {
  const auto* text = i < call->args.size() ? call->args[i].as<StringImmNode>() : nullptr;
  return text ? std::string(text->value) : "";
}

/*! What the program calls a statement. */
std::string StatementName(const Stmt& s) {
  if (const auto* store = s.as<BufferStoreNode>()) {
    return "a store to fragment " + std::string(store->buffer->name);
  }
  const CallNode* call = AsTileOp(s);
  if (!call) return "T.Parallel";
  const std::string op = TileOpName(call);
  if (op == "copy" && TileOpIntAttr(call, "is_async_copy", 0)) return "T.async_copy";
  if (op == "gemm" || op == "gemm_sp") {
    const bool asynchronous = TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
    return (asynchronous ? "T.wgmma_" : "T.") + op;
  }
  if (op == "reduce") return "T.reduce_" + TextArgument(call, 2);
  if (op == "scan") return "T.cum" + TextArgument(call, 2);
  if (op == "atomic") return "T.atomic_" + TextArgument(call, 2);
  static const std::unordered_map<std::string, std::string> others = {
      {"wgmma_wait", "T.wait_wgmma"},
      {"reducer_init", "T.reducer_init"},
      {"reducer_finalize", "T.finalize_reducer"},
      {"fetch_tile", "a tile's number that is fetched"}};
  const auto it = others.find(op);
  return it == others.end() ? "T." + op : it->second;
}

std::string At(const Stmt& s) {
  const std::string where = s.defined() ? Where(s->span) : "";
  return where.empty() ? "" : " (" + where + ")";
}

/*! "in a branch (kernel.py:9) that thread 0 of 128 takes". */
std::string ControlText(const ReachingThreads& reach) {
  const Stmt& control = reach.Control();
  if (control.defined() && (control.as<ForNode>() || control.as<WhileNode>())) {
    return "in a loop" + At(control) + " that threads may run a different number of times";
  }
  const std::string branch = "in a branch" + At(control);
  if (!reach.Here()) return branch + " whose condition threads may find different";
  return branch + " that " + reach.Here()->Text() + " of " +
         std::to_string(reach.Block().BlockSize()) +
         (reach.Here()->Size() == 1 ? " takes" : " take");
}

std::string Hex(uint64_t lanes) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%lX", static_cast<unsigned long>(lanes));
  return text;
}

std::string NameOfReduction(const CallNode* call) {
  static const std::unordered_map<std::string, std::string> names = {
      {"tl::SumOp", "sum"},       {"tl::MaxOp", "max"},     {"tl::MinOp", "min"},
      {"tl::BitAndOp", "bitand"}, {"tl::BitOrOp", "bitor"}, {"tl::BitXorOp", "bitxor"}};
  const auto it = names.find(TextArgument(call, 0));
  return "T.warp_reduce_" + (it == names.end() ? "" : it->second);
}

}  // namespace

bool IsOfLanes(const CallNode* call) {
  const IntrinsicEffects* e = EffectsOf(call);
  return e && e->has_lane_mask;
}

void RefuseControl(const Stmt& s, const ReachingThreads& reach, int64_t warp_threads) {
  const bool loop = reach.Control().defined() && !reach.Control().as<IfThenElseNode>();
  ThrowAt(s->span, "ValueError",
          "found " + StatementName(s) + " " + ControlText(reach) +
              ", wanted all threads of the block or a range of whole warps of " +
              std::to_string(warp_threads) + " threads, which share its work; move it out of the " +
              (loop ? "loop, or give the loop bounds that are the same for all threads"
                    : "branch, or let whole warps take the branch (`if tx < " +
                          std::to_string(warp_threads) + ":`)") +
              "; what one thread does alone, write as stores in T.serial loops");
}

void RefuseOperand(const Stmt& s, const Expr& operand) {
  const auto* region = operand.as<TensorRegionNode>();
  const std::string what =
      region ? "a region of " + std::string(region->source.as_or_throw<Var>()->name)
             : std::string("a value");
  ThrowAt(s->span, "ValueError",
          "found " + StatementName(s) + " of " + what +
              " that differs by thread, wanted one that all threads agree on, since they share the "
              "elements; index it by blocks and loops, or let each thread have its own: stores in "
              "T.serial loops, as `for j in T.serial(n): C[tx, j] = A[tx, j]`");
}

void RefuseExtents(const Span& span) {
  ThrowAt(span, "ValueError",
          "found T.Parallel of bounds that differ by thread, wanted bounds that all threads agree "
          "on, since they share the iterations; use T.serial for what each thread does by itself");
}

void RefuseRace(const BufferStoreNode* store) {
  const std::string name = store->buffer->name;
  ThrowAt(
      store->span, "ValueError",
      "found a store to an element of " + name +
          " that all threads change at the same time, each by a value of its own, wanted one "
          "value or one thread; use T.atomic_add (T.atomic_max, ..), or reduce the values first "
          "(T.reduce_sum)");
}

void RefuseLanes(const CallNode* reduction, const ReachingThreads& reach, const Span& span) {
  ThrowAt(
      span, "ValueError",
      "found " + NameOfReduction(reduction) + " " + ControlText(reach) +
          ", wanted lanes of a warp that are known; call it in front of the branch or loop, with "
          "a value that changes nothing in the other lanes (T.if_then_else(condition, x, 0))");
}

void RefuseMask(const CallNode* call, const ThreadSet& here, int64_t warp, int64_t warp_threads,
                const Span& span) {
  const std::string name = std::string(OpOf(call)->name).substr(std::string("tl.").size());
  // A program's mask has 32 bits, of which all stand for all lanes of any warp.
  constexpr uint64_t kAllOfMask = UINT32_MAX;
  uint64_t mask = static_cast<uint32_t>(*AsInt(call->args[0]));
  if (mask == kAllOfMask) mask = ~uint64_t(0) >> (64 - warp_threads);
  const uint64_t lanes = here.LanesOf(warp, warp_threads);
  const uint64_t some = mask & lanes ? mask & lanes : lanes;
  const std::string say = some < kAllOfMask ? "say mask=" + Hex(some) + ", or give" : "give";
  ThrowAt(span, "ValueError",
          "found " + name + " of the lanes " + Hex(mask) + ", of which only " + Hex(lanes) +
              " of warp " + std::to_string(warp) + " get here (" + here.Text() + " of " +
              std::to_string(here.BlockSize()) + "), wanted lanes that all call it; " + say +
              " the block whole warps of " + std::to_string(warp_threads) + " threads");
}

}  // namespace tl
