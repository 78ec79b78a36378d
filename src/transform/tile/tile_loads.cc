#include "tile_loads.h"

#include <algorithm>

#include "../../layout/annotation.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/parallel.h"
#include "../../op/region_nest.h"
#include "../../op/tma_select.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "pipeline.h"
#include "versions.h"
#include "ws_schedule.h"

namespace tl {
namespace {

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
  for (const Expr& e :
       {r.ranges[last]->min, r.ranges[last]->extent, type->shape[last], type->elem_offset}) {
    if (!IsMultiple(e, unit, analyzer)) return false;
  }
  if (type->strides.empty()) return true;
  if (!IsConst(type->strides[last], 1)) return false;
  for (size_t d = 0; d < last; ++d) {
    if (!IsMultiple(type->strides[d], unit, analyzer)) return false;
  }
  return true;
}

/*! The most stages of a pipelined loop; 0 without one. */
int64_t MostStages(const Stmt& body) {
  int64_t most = 0;
  ForEachIn<ForNode>(body, [&](const ForNode* op) {
    if (IsPipelined(op)) most = std::max(most, StagesOf(op));
  });
  return most;
}

}  // namespace

TileLoads::TileLoads(const KernelInfo& kernel, const Views& views)
    : kernel_(kernel), peers_(kernel.block->body) {
  annotated_.target = kernel.target;
  annotated_.views = std::make_shared<const Views>(views);
  for (auto [buffer, layout] : GetLayoutMap(kernel.block->annotations)) {
    annotated_.PlaceAnnotated(buffer, layout);
  }
  int64_t versions = MostStages(kernel.block->body);
  has_pipelines_ = versions > 0;
  for (const Var& v : kernel.block->alloc_buffers) {
    versions = std::max(versions, DepthOf(kernel.block, v).value_or(1));
  }
  if (const auto schedule = ScheduleOf(kernel.block, kernel.target->warp_threads)) {
    for (const int64_t depth : schedule->depths) versions = std::max(versions, depth);
  }
  has_slots_ = versions > 1;
}

const Placements& TileLoads::Dictated() const {
  if (dictated_) return *dictated_;
  std::vector<std::unique_ptr<TileOperator>> gemms;
  ForEachIn<EvaluateNode>(kernel_.block->body, [&](const EvaluateNode* op) {
    if (IsGemm(GetRef<Stmt>(op))) gemms.push_back(OperatorOf(GetRef<Stmt>(op)));
  });
  Placements& placed = dictated_.emplace(annotated_);
  for (const auto& gemm : gemms) gemm->InferMmaOperandLayout(&placed);
  // MMAs may dictate different layouts of a fragment.
  std::vector<std::pair<Var, Layout>> dictated;
  placed.dictated = &dictated;
  for (const auto& gemm : gemms) gemm->Infer(&placed, InferLevel::kStrict);
  placed.dictated = nullptr;
  return placed;
}

std::string TileLoads::WhyNotTensor(const CallNode* load) const {
  const Var src = TileRegion::From(load->args[0]).buffer;
  const Var dst = TileRegion::From(load->args[1]).buffer;
  const Var tensor = annotated_.views->RootOf(src);
  if (!Contains(kernel_.params, peers_.TensorOf(tensor))) {
    return std::string(src->name) + " is no parameter";
  }
  if (DTypeOf(src) != DTypeOf(tensor)) {
    return std::string(src->name) + " has another dtype than its parameter";
  }
  if (HasSafeValue(tensor, kernel_)) return std::string(src->name) + " has a safe value";
  if (annotated_.views->IsView(dst)) return std::string(dst->name) + " is another name of a buffer";
  for (const char* key : {"cluster_mask", "dst_block"}) {
    if (TileOpAttr(load, key) != nullptr) return key;
  }
  return "";
}

std::string TileLoads::WhyNotTma(const CallNode* load, bool slots) const {
  std::string why = WhyNotTensor(load);
  if (!why.empty()) return why;
  const Var dst = TileRegion::From(load->args[1]).buffer;
  const Layout layout = Dictated().Find(dst);
  Analyzer analyzer;
  WithFacts(&analyzer, FactsWithin(kernel_.block->body), [&] {
    const Call copy = slots ? IntoSlot(load, dst) : GetRef<Call>(load);
    const Layout placed = layout.defined() && slots ? ExpandLayout(layout, {2}) : layout;
    why = SelectTma(copy.get(), TmaMoment::kCandidate, placed, *kernel_.target, &analyzer).why;
  });
  return why;
}

std::optional<size_t> TileLoads::BlockDim(const CallNode* copy, bool slots) const {
  const TileRegion dst = TileRegion::From(copy->args[1]);
  const std::vector<size_t> dims = NonUnitDims(dst);
  for (size_t k = 0; k < dims.size(); ++k) {
    const auto extent = AsInt(dst.ranges[dims[k]]->extent);
    if (!extent || *extent % kernel_.cluster_blocks) continue;
    const Call part = PartOfLoad(copy, k, kernel_.cluster_blocks, MakeVar("rank"));
    if (WhyNotTma(part.get(), slots).empty()) return k;
  }
  return std::nullopt;
}

int64_t TileLoads::AlignedBytes(const CallNode* copy, const std::vector<int64_t>& bytes,
                                int least_bits) const {
  const TileRegion src = TileRegion::From(copy->args[0]), dst = TileRegion::From(copy->args[1]);
  const int bits = DTypeOf(src.buffer).bits;
  if (bits < least_bits || HasSafeValue(src.buffer, kernel_)) return 0;
  for (const char* key : {"coalesced_width", "parallel_loop_layout", kPlacedTensor}) {
    if (TileOpAttr(copy, key) != nullptr) return 0;
  }
  Analyzer analyzer;
  if (!analyzer.CanProveEqual(src.ranges.back()->extent, dst.ranges.back()->extent)) return 0;
  const Layout layout = annotated_.FindAnnotated(dst.buffer);
  for (auto width = bytes.rbegin(); width != bytes.rend(); ++width) {
    const int64_t unit = std::max<int64_t>(1, *width * 8 / bits);
    if (layout.defined() && ContiguousElements(layout) % unit) continue;
    if (HasWholeWords(src, unit, &analyzer) && HasWholeWords(dst, unit, &analyzer)) return *width;
  }
  return 0;
}

}  // namespace tl
