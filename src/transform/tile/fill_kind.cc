#include <algorithm>

#include "../../layout/annotation.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/parallel.h"
#include "../../op/tma_copy.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"
#include "pipeline.h"
#include "versions.h"
#include "warp_roles.h"

namespace tl {
namespace {

constexpr int64_t kCpAsyncBits = 32;  // the narrowest cp.async (PTX ISA, cp.async)

std::string NameOf(const CallNode* call) { return std::string(OpOf(call)->name); }

bool IsParameter(const Var& v, const KernelInfo& kernel) { return Contains(kernel.params, v); }

bool HasSafeValue(const Var& v, const KernelInfo& kernel) {
  const auto it = kernel.block->annotations.find(kSafeValues);
  if (it == kernel.block->annotations.end()) return false;
  const auto values = (*it).second.cast<Map<Var, Expr>>();
  return values.count(v) != 0;
}

/*! The copy into one of two slots of its tile: where the second begins, the others do, too. */
Call IntoSlot(const CallNode* call, const Var& tile) {
  VersionSelector selector;
  selector.versioned[tile.get()] = VersionMaker({{tile.get(), 2}}).Versioned(tile);
  selector.iteration = MakeVar("n");
  return selector.Mutate(GetRef<Call>(call)).as_or_throw<Call>();
}

}  // namespace

std::string WhyNotTmaFill(const CallNode* call, const KernelInfo& kernel, const Placements& placed,
                          int64_t versions) {
  const Views& views = placed.views;
  const Var src = TileRegion::From(call->args[0]).buffer;
  const Var dst = TileRegion::From(call->args[1]).buffer;
  if (!IsParameter(views.RootOf(src), kernel)) {
    return std::string(src->name) + " is no parameter";
  }
  if (BufferOf(src)->dtype->dtype != BufferOf(views.RootOf(src))->dtype->dtype) {
    return std::string(src->name) + " has another dtype than its parameter";
  }
  if (HasSafeValue(views.RootOf(src), kernel)) return std::string(src->name) + " has a safe value";
  if (views.IsView(dst)) return std::string(dst->name) + " is another name of a buffer";
  for (const char* key : {"cluster_mask", "dst_block"}) {
    if (TileOpAttr(call, key) != nullptr) return key;
  }
  const Layout layout = placed.Find(dst);
  Analyzer analyzer;
  std::string why;
  WithFacts(&analyzer, LeadingAssumptions(kernel.block->body), [&] {
    if (versions == 1) {
      why = WhyNotTmaLoad(call, layout, *kernel.target, &analyzer);
    } else {
      const Layout slots = layout.defined() ? ExpandLayout(layout, {2}) : layout;
      why = WhyNotTmaLoad(IntoSlot(call, dst).get(), slots, *kernel.target, &analyzer);
    }
  });
  return why;
}

namespace {

/*! The expression is a multiple of `unit` for all values of its variables. */
bool IsMultiple(const Expr& e, int64_t unit, Analyzer* analyzer) {
  const Analyzer::Modular m = analyzer->ModularSet(e);
  return m.coeff % unit == 0 && m.base % unit == 0;
}

/*! Rows of a region start at multiples of `unit` elements and are multiples long, whatever of them
 * lies outside. */
bool HasWholeWords(const TileRegion& r, int64_t unit, Analyzer* analyzer) {
  const BufferTypeNode* type = BufferOf(r.buffer);
  const size_t last = type->shape.size() - 1;
  for (const Expr& e : {r.ranges[last]->min, r.ranges[last]->extent, type->shape[last]}) {
    if (!IsMultiple(e, unit, analyzer)) return false;
  }
  if (type->strides.empty()) return true;
  if (!IsConst(type->strides[last], 1)) return false;
  for (size_t d = 0; d < last; ++d) {
    if (!IsMultiple(type->strides[d], unit, analyzer)) return false;
  }
  return true;
}

/*! The copy certainly becomes cp.async, and keeps all threads busy. */
bool IsCpAsync(const CallNode* call, const KernelInfo& kernel, const Placements& placed) {
  if (NameOf(call) != "tl.tileop.copy") return false;
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  const DLDataType type = BufferOf(src.buffer)->dtype->dtype;
  if (type != BufferOf(dst.buffer)->dtype->dtype || type.bits < 8) return false;
  const Any prefer = TileOpAttr(call, "prefer_instruction");
  if (prefer != nullptr && prefer.cast<String>() == "sync") return false;
  if (!PassConfigFlag("tl.enable_async_copy", true)) return false;
  if (HasSafeValue(src.buffer, kernel)) return false;
  for (const char* key : {"coalesced_width", "parallel_loop_layout", kPlacedTensor}) {
    if (TileOpAttr(call, key) != nullptr) return false;
  }

  const int64_t unit = std::max<int64_t>(1, kCpAsyncBits / type.bits);
  Analyzer analyzer;
  if (!analyzer.CanProveEqual(src.ranges.back()->extent, dst.ranges.back()->extent)) return false;
  if (!HasWholeWords(src, unit, &analyzer) || !HasWholeWords(dst, unit, &analyzer)) return false;
  const Layout layout = placed.FindAnnotated(dst.buffer);
  if (layout.defined() && ContiguousElements(layout) % unit) return false;
  int64_t elements = 1;
  for (const Range& r : dst.ranges) elements *= AsInt(r->extent).value_or(0);
  return elements >= unit * kernel.threads;
}

}  // namespace

bool IsTileLoad(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  if (!call || (NameOf(call) != "tl.tileop.copy" && NameOf(call) != "tl.tileop.im2col")) {
    return false;
  }
  return IsGlobal(TileRegion::From(call->args[0]).buffer) &&
         IsShared(TileRegion::From(call->args[1]).buffer);
}

bool IsGemm(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  return call && NameOf(call).rfind("tl.tileop.gemm", 0) == 0;
}

bool IsDraw(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  return call && NameOf(call) == kDraw;
}

Placements DictatedLayouts(const KernelInfo& kernel, const Views& views) {
  struct Collector : StmtExprVisitor {
    std::vector<std::unique_ptr<TileOperator>> gemms;
    using StmtExprVisitor::Visit_;
    void Visit_(const EvaluateNode* op) override {
      if (IsGemm(GetRef<Stmt>(op))) gemms.push_back(OperatorOf(GetRef<Stmt>(op)));
    }
  } collected;
  collected(kernel.block->body);
  Placements placed;
  placed.views = views;
  for (auto [buffer, layout] : GetLayoutMap(kernel.block->annotations)) {
    placed.PlaceAnnotated(buffer, layout);
  }
  for (const auto& gemm : collected.gemms) gemm->PlaceForEngines(&placed);
  // Of fragments, products may dictate different layouts.
  std::vector<std::pair<Var, Layout>> dictated;
  placed.dictated = &dictated;
  for (const auto& gemm : collected.gemms) gemm->Infer(&placed, InferLevel::kStrict);
  placed.dictated = nullptr;
  return placed;
}

FillBy KindOfFill(const Stmt& copy, const KernelInfo& kernel, const Placements& placed,
                  int64_t versions, std::string* why) {
  const CallNode* call = AsTileOp(copy);
  if (!call) {
    *why = "it is a loop over elements";
    return copy.as<ForNode>() ? FillBy::kThreads : FillBy::kNothing;
  }
  if (TileOpIntAttr(call, "is_async_copy", 0)) {
    *why = "T.async_copy commits copies of its own";
    return FillBy::kNothing;
  }
  if (!IsTileLoad(copy)) {
    *why = "it is no copy of a tile";
    return FillBy::kNothing;
  }
  *why = WhyNotTmaFill(call, kernel, placed, versions);
  if (why->empty()) return FillBy::kTma;
  const Any prefer = TileOpAttr(call, "prefer_instruction");
  if (prefer != nullptr && prefer.cast<String>() == "tma") return FillBy::kNothing;
  return IsCpAsync(call, kernel, placed) ? FillBy::kCpAsync : FillBy::kThreads;
}

}  // namespace tl
