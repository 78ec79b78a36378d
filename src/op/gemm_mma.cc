/*! T.gemm and its like by a matrix instruction of warps: fragments of A and B from shared memory
 * or registers, as the instruction's row lays them out. */
#include <cctype>

#include "../layout/inverse.h"
#include "../tvm/functor.h"
#include "block_reduce.h"
#include "gemm.h"
#include "intrinsics.h"
#include "matrix_copy.h"

namespace tl {
namespace {

/*! Scales in the register that an instruction takes its scale from. */
constexpr int64_t kScalesOfWord = 4;
/*! Matrix instructions whose operands are read before the first one begins: in the cycles of three
 * of them the four wavefronts of a block get what they have asked LDS for. */
constexpr int64_t kReadAhead = 4;

/*! Emits the steps of one instruction. */
class MmaEmitter {
 public:
  MmaEmitter(const GemmOp& op, const GemmPlan& plan, const MmaSteps& steps, const GemmOperand& a,
             const GemmOperand& b, LoweringScope* scope)
      : op_(op),
        steps_(steps),
        mma_(*steps.instruction),
        operand_a_(a),
        operand_b_(b),
        scope_(scope),
        registers_c_(scope->RegistersOf(op.c.buffer)),
        m_warps_(plan.warps.m_warps),
        n_warps_(plan.warps.n_warps),
        m_tiles_(op.M() / (mma_.m * m_warps_)),
        n_tiles_(op.N() / (mma_.n * n_warps_)),
        interleaves_reads_(plan.interleaves_reads),
        interleaving_(plan.interleaving),
        lane_(FloorModOf(scope->thread, scope->target->warp_threads)),
        row_warp_(FloorModOf(FloorDivOf(scope->thread, scope->target->warp_threads), m_warps_)),
        col_warp_(FloorDivOf(FloorDivOf(scope->thread, scope->target->warp_threads), m_warps_)),
        together_(op.scales_a && a.shared.defined() && b.shared.defined() &&
                          steps.steps % kScalesOfWord == 0
                      ? kScalesOfWord
                      : 1),
        at_once_(mma_.operand.bits == 6 ? together_ : 1),
        a_(FragmentOf(a, op.a.buffer, together_ * m_tiles_ * mma_.ElementsA())),
        b_(FragmentOf(b, op.b.buffer, together_ * n_tiles_ * mma_.ElementsB())) {}

  Stmt Emit() {
    const Var group = MakeVar("ki");
    scope_->analyzer->BindConst(group, steps_.steps / together_);
    std::vector<Stmt> body;
    if (operand_a_.shared.defined()) body.push_back(MakeAlloc(a_));
    if (operand_b_.shared.defined()) body.push_back(MakeAlloc(b_));
    if (together_ > 1) LoadScales(group, &body);
    for (int64_t step = 0; step < together_; ++step) {
      const Expr k = together_ == 1 ? Expr(group) : Expr(group) * together_ + step;
      const bool loads = step % at_once_ == 0;
      if (loads && operand_a_.shared.defined()) LoadA(k, step, &body);
      if (loads && operand_b_.shared.defined()) LoadB(k, step, &body);
      if (op_.metadata) LoadMetadata(k, &body);
      if (op_.scales_a && together_ == 1) LoadScales(group, &body);
      Var i = MakeVar("i"), j = MakeVar("j");
      body.push_back(UnrolledFor(i, m_tiles_,
                                 UnrolledFor(j, n_tiles_, Mma(k, step, i, j), op_.span), op_.span));
    }
    Stmt main = UnrolledFor(group, steps_.steps / together_, MakeSeq(body), op_.span);
    const int64_t computing = scope_->target->warp_threads * m_warps_ * n_warps_;
    if (computing == scope_->num_threads) return WithSchedule(main);
    return MakeIf(scope_->thread < MakeInt(computing), main, op_.span);
  }

 private:
  Var FragmentOf(const GemmOperand& operand, const Var& buffer, int64_t elements) const {
    if (operand.registers.defined()) return operand.registers;
    return MakeBuffer(std::string(buffer->name) + "_frag", DTypeOf(buffer), {MakeInt(elements)},
                      "local");
  }

  /*! ldmatrix moves units of 16 bits: others keep their order inside a row only. */
  bool UsesLdmatrix(const GemmOperand& from) const {
    const int bits = mma_.operand.bits;
    return mma_.has_ldmatrix && scope_->target->Has(Feature::kLdmatrix) &&
           from.vector_bytes == 16 && (from.transposed ? bits == 16 : bits <= 32);
  }

  Stmt LoadMatrix(const GemmOperand& from, int64_t matrices, const Expr& row, const Expr& k,
                  const Var& to, const Expr& reg) const {
    auto [buffer, indices] = scope_->ToPhysical(from.shared, from.Element(row, k));
    const std::string op =
        "tl.ptx_ldmatrix_x" + std::to_string(matrices) + (from.transposed ? "_trans" : "");
    return MakeEvaluate(CallOp(op, {AddressOf(buffer, indices), AddressOf(to, {reg})}), op_.span);
  }

  /*! The matrices that `fragment` is made of, where it lies in shared memory as `from` does, and of
   * which an instruction of the target's loads one at a time: the lanes name rows for each other.
   * nullptr where there are none. */
  const LaneMatrix* MatricesOf(const GemmOperand& from, const Fragment& fragment) const {
    const Fragment stored = from.transposed ? TransposeFragment(fragment) : fragment;
    const int64_t lanes = scope_->target->warp_threads;
    for (const CopyInstruction& row : scope_->target->copies) {
      if (row.from != MemorySpace::kShared || !scope_->target->Has(row.feature)) continue;
      const LaneMatrix* found = FindMatrix(row, mma_.operand.bits, [&](const LaneMatrix& m) {
        return m.Columns() * m.bits / 8 <= from.vector_bytes && m.Rows() == lanes &&
               IsMadeOf(stored, m, lanes, lanes);
      });
      if (found) return found;
    }
    return nullptr;
  }

  /*! Those, each by one instruction. */
  Stmt LoadMatrices(const GemmOperand& from, const Fragment& fragment, const LaneMatrix& matrix,
                    const Expr& row, const Expr& k, const Var& to, const Expr& reg) const {
    const int64_t n = matrix.Registers(), count = fragment->RegisterExtent() / n;
    Var block = MakeVar("r");
    scope_->analyzer->BindConst(block, count);
    const RowPlace named = RowOfLane(matrix, lane_, 1);
    const auto element = InvertFragment(fragment, named.lane, Expr(block) * n + named.reg,
                                        scope_->target->warp_threads);
    TVM_FFI_ICHECK(element) << mma_.Text() << " has a fragment that is no sum of digits";
    auto [buffer, indices] = scope_->ToPhysical(
        from.shared, from.Element(row + element->coords[0], k + Spread(element->coords[1])));
    const Stmt load =
        MakeEvaluate(CallOp(IntrinsicFor(matrix, 1),
                            {AddressOf(buffer, indices), AddressOf(to, {reg + Expr(block) * n})}),
                     op_.span);
    return UnrolledFor(block, count, load, op_.span);
  }

  /*!
   * The fragments of the tiles of a step, of which `count` take neighbouring rows in turns, in an
   * operand that is not K-major: each vector of neighbours is one element of `count` fragments.
   * `first` is the register of the first tile.
   */
  Stmt LoadInterleaved(const GemmOperand& from, const Fragment& fragment, int64_t count,
                       int64_t tiles, const Expr& warp, int64_t warps, const Expr& k, const Var& to,
                       int64_t first) const {
    const int64_t unit = fragment->Shape()[0], elements = fragment->RegisterExtent();
    const Var group = MakeVar("j"), block = MakeVar("r"), part = MakeVar("v");
    scope_->analyzer->BindConst(group, tiles / count);
    scope_->analyzer->BindConst(block, elements);
    scope_->analyzer->BindConst(part, count);
    const auto element = InvertFragment(fragment, lane_, block, scope_->target->warp_threads);
    TVM_FFI_ICHECK(element) << mma_.Text() << " has a fragment that is no sum of digits";
    const Expr row = (warp + Expr(group) * warps) * (unit * count) + element->coords[0] * count;
    auto [buffer, indices] =
        scope_->ToPhysical(from.shared, from.Element(row + part, k + Spread(element->coords[1])));
    const Var neighbours = MakeBuffer(std::string(from.shared->name) + "_vector",
                                      DTypeOf(from.shared), {MakeInt(count)}, "local");
    const bool is_vector = count * mma_.operand.bits <= from.vector_bytes * 8;
    const Stmt load =
        MakeFor(part, MakeInt(count), is_vector ? ForKind::kVectorized : ForKind::kUnrolled,
                MakeStore(neighbours, LoadOf(buffer, indices), {part}, op_.span), op_.span);
    const Var q = MakeVar("q");
    const Expr reg = (Expr(group) * count + q) * elements + block + first;
    const Stmt deal =
        UnrolledFor(q, count, MakeStore(to, LoadOf(neighbours, {q}), {reg}, op_.span), op_.span);
    return UnrolledFor(
        group, tiles / count,
        UnrolledFor(block, elements, MakeSeq({MakeAlloc(neighbours), load, deal}), op_.span),
        op_.span);
  }

  /*! An operand's fragment, by what the target has for it. */
  Stmt LoadFragment(const GemmOperand& from, const Fragment& fragment, const Expr& row,
                    const Expr& k, const Var& to, const Expr& reg) const {
    if (const LaneMatrix* matrix = MatricesOf(from, fragment)) {
      return LoadMatrices(from, fragment, *matrix, row, k, to, reg);
    }
    return LoadElements(from, fragment, row, k, to, reg);
  }

  /*! Instructions that read a fragment from shared memory, nullopt where it takes one for a few
   * bytes: what VectorizeLoop makes of LoadElements. */
  std::optional<int64_t> ReadsOf(const GemmOperand& from, const Fragment& fragment) const {
    if (const LaneMatrix* matrix = MatricesOf(from, fragment)) {
      return fragment->RegisterExtent() / matrix->Registers();
    }
    const int bits = mma_.Stored().bits;
    const int64_t run = fragment->ContiguousRegisters() * bits / 8;
    const int64_t width = std::min(run, from.vector_bytes);
    if (from.transposed || width < 8) return std::nullopt;
    return fragment->RegisterExtent() * bits / 8 / width;
  }

  /*!
   * With the order of reads and matrix instructions for the device's compiler: first what the first
   * kReadAhead of them want, then behind each as many reads as most want: tiles of a row follow
   * each other, so that is a fragment of B.
   */
  Stmt WithSchedule(const Stmt& main) const {
    // LDS is busy for as long as MFMA with operands of 6 bits: no order made the loop faster.
    // Scales of one step are read byte by byte.
    const bool scales_alone = op_.IsScaled() && together_ == 1;
    if (!interleaves_reads_ || mma_.operand.bits == 6 || scales_alone) return main;
    const auto a = ReadsOf(operand_a_, mma_.a), b = ReadsOf(operand_b_, mma_.b);
    if (!a || !b) return main;
    const int64_t scales = op_.IsScaled() ? m_tiles_ + n_tiles_ : 0;
    const int64_t products = steps_.steps * m_tiles_ * n_tiles_;
    const int64_t all =
        steps_.steps * (m_tiles_ * *a + n_tiles_ * *b) + steps_.steps / together_ * scales;
    int64_t first = scales;
    for (int64_t p = 0; p < std::min(kReadAhead, products); ++p) {
      const int64_t in_step = p % (m_tiles_ * n_tiles_);
      if (in_step % n_tiles_ == 0) first += *a;
      if (in_step < n_tiles_) first += *b;
    }
    const int64_t left = all - first;
    const int64_t wanted = n_tiles_ > 1 ? *b : m_tiles_ > 1 ? *a : *a + *b;
    const int64_t each = std::max(wanted, (left + products - 1) / products);
    const int64_t times = (left + each - 1) / each;
    if (times <= 0) return main;
    scope_->Note(op_.span, "reads of shared memory between matrix instructions: " +
                               std::to_string(first) + " in front, then " + std::to_string(each) +
                               " behind each of " + std::to_string(times));
    const Call call = CallOp(kScheduleReads, {MakeInt(first), MakeInt(each), MakeInt(times)});
    return MakeSeq({main, MakeEvaluate(call, op_.span)});
  }

  /*! The elements of `fragment` one by one, those along K of consecutive registers together. */
  Stmt LoadElements(const GemmOperand& from, const Fragment& fragment, const Expr& row,
                    const Expr& k, const Var& to, const Expr& reg) const {
    const int64_t p = fragment->ContiguousRegisters(), blocks = fragment->RegisterExtent() / p;
    Var block = MakeVar("r"), part = MakeVar("v");
    scope_->analyzer->BindConst(block, blocks);
    scope_->analyzer->BindConst(part, p);
    const auto element =
        InvertFragment(fragment, lane_, Expr(block) * p + part, scope_->target->warp_threads);
    TVM_FFI_ICHECK(element) << mma_.Text() << " has a fragment that is no sum of digits";
    auto [buffer, indices] = scope_->ToPhysical(
        from.shared, from.Element(row + element->coords[0], k + Spread(element->coords[1])));
    Stmt load = MakeStore(to, LoadOf(buffer, indices), {reg + Expr(block) * p + part}, op_.span);
    load = p == 1 ? Substitute(load, part, MakeInt(0))
                  : Stmt(MakeFor(part, MakeInt(p), ForKind::kVectorized, load, op_.span));
    return UnrolledFor(block, blocks, load, op_.span);
  }

  /*! Lanes 8 g .. 8 g + 7 give the rows of matrix g. */
  Expr RowInMatrix() const { return FloorModOf(lane_, 8); }
  Expr Matrix(int64_t bit) const { return FloorModOf(FloorDivOf(lane_, 8 * bit), 2); }

  /*! Number of a tile's fragment among those of the steps that are together. */
  Expr InStep(int64_t step, int64_t tiles, const Expr& tile) const {
    if (at_once_ > 1) return tile * at_once_ + step;
    return step == 0 ? tile : tile + step * tiles;
  }

  /*! What is loaded of an operand for a step, or for the steps that are loaded at once: a lane's
   * bytes of these follow each other in memory (Spread), so they are one run of registers, too. */
  Fragment Loaded(const Fragment& fragment) const {
    if (at_once_ == 1) return fragment;
    const int64_t rows = fragment->Shape()[0], run = at_once_ * fragment->RegisterExtent();
    return MakeWarpFragment({{0, rows, 1}, {1, scope_->target->warp_threads / rows, run}},
                            {{1, run, 1}});
  }

  /*! Where step k begins, in elements that are stored of A or of B. */
  Expr DepthOfA(const Expr& k) const {
    return mma_.sparse ? k * mma_.StoredK() + steps_.begin : DepthOfB(k);
  }
  Expr DepthOfB(const Expr& k) const {
    const int64_t begin = mma_.StoredOf(steps_.begin), depth = mma_.StoredOf(mma_.k);
    if (together_ == 1) return k * depth + begin;
    return FloorDivOf(k, together_) * (together_ * depth) +
           FloorModOf(k, together_) * mma_.StoredOf(mma_.scale_k) + begin;
  }
  /*!
   * Where element `k` along K of an instruction is behind the step's beginning. Steps whose scales
   * are loaded together take the blocks of a scale in turn: block b of step s is block b * together
   * + s, so that those of a lane, which has one block of each step, are neighbours, and their
   * scales, too. A sum is the same in any order of its blocks, and A and B have the same.
   */
  Expr Spread(const Expr& k) const {
    if (together_ == 1 || at_once_ > 1) return k;
    return FloorDivOf(k, mma_.scale_k) * (together_ * mma_.scale_k) + FloorModOf(k, mma_.scale_k);
  }

  void LoadA(const Expr& k, int64_t step, std::vector<Stmt>* body) const {
    if (interleaving_.m > 1) {
      body->push_back(LoadInterleaved(operand_a_, mma_.a, interleaving_.m, m_tiles_, row_warp_,
                                      m_warps_, DepthOfA(k), a_,
                                      step * m_tiles_ * mma_.ElementsA()));
      return;
    }
    Var i = MakeVar("i");
    scope_->analyzer->BindConst(i, m_tiles_);
    body->push_back(UnrolledFor(i, m_tiles_, LoadTileA(k, step, i), op_.span));
  }

  /*! Matrices in register order: down the rows, then along k. */
  Stmt LoadTileA(const Expr& k, int64_t step, const Expr& i) const {
    const Expr row0 = (row_warp_ + i * m_warps_) * mma_.m;
    const Expr reg = InStep(step, m_tiles_, i) * mma_.ElementsA();
    if (!UsesLdmatrix(operand_a_)) {
      return LoadFragment(operand_a_, Loaded(mma_.a), row0, DepthOfA(k), a_, reg);
    }
    const int64_t rows = mma_.m / 8, depths = mma_.StoredK() / mma_.BlockDepth();
    Expr k0 = DepthOfA(k);
    if (operand_a_.transposed) k0 = k0 + RowInMatrix();
    if (depths == 2) k0 = k0 + Matrix(rows) * mma_.BlockDepth();
    const Expr row =
        operand_a_.transposed ? row0 + Matrix(1) * 8 : row0 + FloorModOf(lane_, mma_.m);
    return LoadMatrix(operand_a_, rows * depths, row, k0, a_, reg);
  }

  /*! Column tiles in pairs where four matrices are two of them: the second one's follow the first
   * one's. */
  void LoadB(const Expr& k, int64_t step, std::vector<Stmt>* body) const {
    if (interleaving_.n > 1) {
      body->push_back(LoadInterleaved(operand_b_, mma_.b, interleaving_.n, n_tiles_, col_warp_,
                                      n_warps_, DepthOfB(k), b_,
                                      step * n_tiles_ * mma_.ElementsB()));
      return;
    }
    Var j = MakeVar("j");
    scope_->analyzer->BindConst(j, n_tiles_);
    if (!UsesLdmatrix(operand_b_)) {
      const Expr col0 = (col_warp_ + Expr(j) * n_warps_) * mma_.n;
      const Expr reg = InStep(step, n_tiles_, j) * mma_.ElementsB();
      Stmt load = LoadFragment(operand_b_, Loaded(mma_.b), col0, DepthOfB(k), b_, reg);
      body->push_back(UnrolledFor(j, n_tiles_, load, op_.span));
      return;
    }
    const int64_t together = mma_.k / mma_.BlockDepth() <= 2 && n_tiles_ >= 2 ? 2 : 1;
    const Expr first = Expr(j) * together;
    body->push_back(UnrolledFor(j, n_tiles_ / together, LoadTilesB(k, first, together), op_.span));
    if (n_tiles_ % together) body->push_back(LoadTilesB(k, MakeInt(n_tiles_ - 1), 1));
  }

  Stmt LoadTilesB(const Expr& k, const Expr& j, int64_t tiles) const {
    const int64_t depths = mma_.k / mma_.BlockDepth();
    const Expr tile = tiles == 2 ? j + Matrix(depths) : j;
    const Expr col0 = (col_warp_ + tile * n_warps_) * 8, reg = j * mma_.ElementsB();
    Expr k0 = DepthOfB(k);
    if (depths == 2) k0 = k0 + Matrix(1) * mma_.BlockDepth();
    if (depths == 4) k0 = k0 + FloorDivOf(lane_, 8) * mma_.BlockDepth();
    const Expr row = operand_b_.transposed ? col0 : col0 + RowInMatrix();
    if (operand_b_.transposed) k0 = k0 + RowInMatrix();
    return LoadMatrix(operand_b_, depths * tiles, row, k0, b_, reg);
  }

  void LoadMetadata(const Expr& k, std::vector<Stmt>* body) {
    metadata_ = MakeBuffer(std::string(op_.metadata->buffer->name) + "_frag", {kDLUInt, 32, 1},
                           {MakeInt(m_tiles_)}, "local");
    body->push_back(MakeAlloc(metadata_));
    Var i = MakeVar("i");
    scope_->analyzer->BindConst(i, m_tiles_);
    const int bits = mma_.MetadataBits();
    const Expr row = (row_warp_ + Expr(i) * m_warps_) * mma_.m;
    const Expr value = MetadataOfLane(op_, row, lane_, Expr(k) * bits, bits, scope_);
    body->push_back(UnrolledFor(i, m_tiles_, MakeStore(metadata_, value, {i}, op_.span), op_.span));
  }

  /*! A lane's scales of the steps that take them together, for each tile along M and along N. */
  void LoadScales(const Expr& group, std::vector<Stmt>* body) {
    const Expr block = FloorDivOf(group * (together_ * mma_.k) + steps_.begin, mma_.scale_k) +
                       FloorDivOf(lane_, mma_.m) * together_;
    const auto load = [&](const TileRegion& scales, int64_t tiles, int64_t rows, const Expr& warp,
                          int64_t warps) {
      const Var to = MakeBuffer(std::string(scales.buffer->name) + "_frag", DTypeOf(scales.buffer),
                                {MakeInt(tiles * together_)}, "local");
      body->push_back(MakeAlloc(to));
      Var i = MakeVar("i"), part = MakeVar("v");
      scope_->analyzer->BindConst(i, tiles);
      scope_->analyzer->BindConst(part, together_);
      Array<Expr> at = scales.Mins();
      const size_t lead = at.size() - 2;
      at.Set(lead, at[lead] + (warp + Expr(i) * warps) * rows + FloorModOf(lane_, rows));
      at.Set(lead + 1, at[lead + 1] + block);
      if (together_ > 1) at.Set(lead + 1, at[lead + 1] + part);
      auto [buffer, indices] = scope_->ToPhysical(scales.buffer, at);
      Stmt store = MakeStore(to, LoadOf(buffer, indices),
                             {together_ == 1 ? Expr(i) : Expr(i) * together_ + part}, op_.span);
      if (together_ > 1) {
        store = MakeFor(part, MakeInt(together_), ForKind::kVectorized, store, op_.span);
      }
      body->push_back(UnrolledFor(i, tiles, store, op_.span));
      return to;
    };
    scales_a_ = load(*op_.scales_a, m_tiles_, mma_.m, row_warp_, m_warps_);
    scales_b_ = load(*op_.scales_b, n_tiles_, mma_.n, col_warp_, n_warps_);
  }

  Stmt Mma(const Expr& k, int64_t step, const Expr& i, const Expr& j) const {
    // Fragments that stay in registers have all of K, tile after tile.
    const Expr tile_a = operand_a_.shared.defined() ? InStep(step, m_tiles_, i) : k * m_tiles_ + i;
    const Expr tile_b = operand_b_.shared.defined() ? InStep(step, n_tiles_, j) : k * n_tiles_ + j;
    Array<Expr> args;
    for (const std::string& text : mma_.template_args) {
      const bool is_size = std::isdigit(static_cast<unsigned char>(text[0]));
      args.push_back(is_size ? MakeInt(std::stoll(text)) : StringOf(text));
    }
    if (together_ > 1) args.push_back(MakeInt(step));
    args.push_back(AddressOf(registers_c_, {(j * m_tiles_ + i) * mma_.ElementsC()}));
    Array<Expr> operands = {AddressOf(a_, {tile_a * mma_.ElementsA()}),
                            AddressOf(b_, {tile_b * mma_.ElementsB()})};
    Array<Expr> scales;
    if (op_.scales_a && together_ == 1) {
      scales = {LoadOf(scales_a_, {i}), LoadOf(scales_b_, {j})};
    } else if (op_.scales_a) {
      scales = {AddressOf(scales_a_, {i * together_}), AddressOf(scales_b_, {j * together_})};
    }
    if (mma_.exchanges_operands) {
      operands = {operands[1], operands[0]};
      if (op_.scales_a) scales = {scales[1], scales[0]};
    }
    for (const Expr& operand : operands) args.push_back(operand);
    for (const Expr& scale : scales) args.push_back(scale);
    if (op_.metadata) args.push_back(LoadOf(metadata_, {i}));
    return MakeEvaluate(CallOp(together_ > 1 ? kMfmaScaleOfWord : mma_.intrinsic, args), op_.span);
  }

  const GemmOp& op_;
  const MmaSteps& steps_;
  const MatrixInstruction& mma_;
  const GemmOperand &operand_a_, &operand_b_;
  LoweringScope* scope_;
  Var registers_c_;
  int64_t m_warps_, n_warps_, m_tiles_, n_tiles_;
  bool interleaves_reads_;
  Interleaving interleaving_;
  Expr lane_, row_warp_, col_warp_;
  /*! Steps along K whose scales a lane loads at once. */
  int64_t together_;
  /*! Those whose elements it loads at once: 24 bytes of 6-bit floats are no vector, four times as
   * many are six. */
  int64_t at_once_;
  Var a_, b_, metadata_, scales_a_, scales_b_;
};

}  // namespace

Stmt LowerGemmToMma(const GemmOp& op, const GemmPlan& plan, const MmaSteps& steps,
                    const GemmOperand& a, const GemmOperand& b, LoweringScope* scope) {
  return MmaEmitter(op, plan, steps, a, b, scope).Emit();
}

}  // namespace tl
