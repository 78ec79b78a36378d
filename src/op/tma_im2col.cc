/*!
 * tl.tileop.tma_im2col(.. as tl.tileop.im2col, barrier region of one element): what warp
 * specialisation and pipelines make of T.im2col. One thread, elected already, issues loads in
 * im2col mode: the unit walks over the pixels where windows begin, in the order of the matrix's
 * rows, and copies channels of the pixels that lie a tap's distance from them (PTX ISA, Tensors,
 * "Im2col mode").
 */
#include "../tvm/error.h"
#include "im2col.h"
#include "intrinsics.h"
#include "tma_copy.h"
#include "tma_select.h"

namespace tl {
namespace {

/*! A map's limits (CUDA Driver API, cuTensorMapEncodeIm2col; PTX ISA, cp.async.bulk.tensor): steps
 * between pixels, the corners of the box of pixels, and offsets of 8 bits. */
constexpr int64_t kMaxStride = 8, kMaxCorner = 127, kMaxOffset = 255;

/*! Tiles are channels of one tap. Behind the last channel TMA writes zeros. */
std::string CheckChannels(const Im2col& im2col, Analyzer* analyzer) {
  const auto columns = AsInt(im2col.columns);
  if (!columns || !AsInt(im2col.rows)) return "an extent that is known at run time only";
  if (im2col.whole_taps) return "";
  const auto divides = [&](const Expr& e) {
    const Analyzer::Modular m = analyzer->ModularSet(e);
    return m.coeff % *columns == 0 && m.base % *columns == 0;
  };
  if (divides(im2col.Channels())) return "";
  const auto channels = AsInt(im2col.Channels());
  return "a tile of " + std::to_string(*columns) + " columns, which does not divide " +
         (channels ? std::to_string(*channels) + " channels" : "a symbolic number of channels");
}

std::string CheckGeometry(const Im2col& im2col) {
  struct Limit {
    const char* what;
    int64_t found, most;
  };
  const int64_t reach = (im2col.kernel - 1) * im2col.dilation;
  for (const Limit& limit :
       {Limit{"a stride of ", im2col.stride, kMaxStride},
        Limit{"a padding of ", im2col.pad, kMaxCorner},
        Limit{"taps at a distance of ", reach, kMaxOffset},
        Limit{"taps behind the padding, by ", reach - im2col.pad, kMaxCorner + 1}}) {
    if (limit.found <= limit.most) continue;
    return limit.what + std::to_string(limit.found) + " pixels, more than " +
           std::to_string(limit.most);
  }
  return "";
}

/*! The loads of all boxes. */
Stmt IssueIm2col(const Im2col& im2col, const TmaPlan& plan, const Expr& barrier,
                 const TmaIssue& issue, LoweringScope* scope, const Span& span) {
  std::vector<Expr> first = {im2col.first_row, im2col.first_column};
  const BoxAddress place = AddressOfBox(im2col.tile, plan, &first, scope);
  const Im2col::Pixel pixel = im2col.FirstPixel(first[0]);
  Im2col::Tap tap = im2col.TapOf(first[1]);
  // Outside of the matrix is behind the last channel.
  if (!scope->analyzer->CanProve(tap.inside)) {
    tap.channel = IfThenElseOf(tap.inside, tap.channel, im2col.Channels());
    tap.y = IfThenElseOf(tap.inside, tap.y, MakeInt(0));
  }
  Array<Expr> args = {MakeInt(4), HintOf(issue),
                      TmaDescriptor(im2col.image.buffer, plan, scope->analyzer), barrier,
                      place.shared};
  for (const Expr& e : {tap.channel, pixel.x, pixel.y, pixel.image, tap.x, tap.y}) {
    args.push_back(scope->analyzer->Simplify(CastTo(kInt32, e)));
  }
  return OverBoxes(place, MakeEvaluate(CallOp(kTmaLoadIm2col, args), span), span);
}

class TmaIm2colOperator : public TileOperator {
 public:
  TmaIm2colOperator(const CallNode* call, const Span& s)
      : TileOperator(s),
        call_(GetRef<Call>(call)),
        im2col_(Im2col::From(call)),
        barrier_(TileRegion::From(call->args[call->args.size() - 1])),
        issue_(TmaIssueOf(call)) {
    if (!issue_.elected) ThrowBug(s, "TmaIm2col", "found a load by threads, wanted an elected one");
  }

  BufferUse Use() const final { return {{im2col_.image.buffer}, {Tile()}}; }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level != InferLevel::kPrefer || scope->Find(Tile()).defined()) return false;
    return ProposeTma(call_, Tile(), scope, span);
  }

  Call SelectInstruction(const LayoutScope& scope) const final {
    const TmaDecision tma = SelectTma(call_.get(), TmaMoment::kFinal, scope.Find(Tile()),
                                      *scope.target, scope.analyzer);
    if (tma.IsMade()) return WithTmaPlan(call_.get(), tma.plan);
    ThrowAt(span, "ValueError",
            "T.im2col: found " + tma.why +
                ", wanted a tile that TMA can load, as was planned before "
                "layouts were; give it annotations={\"disable_tma\": True}");
  }

  Stmt Lower(LoweringScope* scope) const final {
    const TmaPlan plan = TmaPlanOf(call_.get());
    const auto [buffer, indices] = scope->ToPhysical(barrier_.buffer, barrier_.Mins());
    return IssueIm2col(im2col_, plan, AddressOf(buffer, indices), issue_, scope, span);
  }

 private:
  Var Tile() const { return im2col_.tile.buffer; }

  Call call_;
  Im2col im2col_;
  TileRegion barrier_;
  TmaIssue issue_;
};

OperatorRegistration tma_im2col_registration(kTmaIm2col, "tl.tma_im2col",
                                             MakeOperator<TmaIm2colOperator>);

}  // namespace

std::string PlanIm2col(const Im2col& im2col, const Layout& layout, Analyzer* analyzer,
                       TmaPlan* plan) {
  std::string why = CheckChannels(im2col, analyzer);
  if (why.empty()) why = CheckGeometry(im2col);
  if (!why.empty()) return why;
  const int64_t reach = (im2col.kernel - 1) * im2col.dilation;
  return PlanTmaPixels(im2col.image, im2col.tile, layout,
                       {-im2col.pad, im2col.pad - reach, im2col.stride}, analyzer, plan);
}

}  // namespace tl
