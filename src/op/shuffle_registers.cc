#include "shuffle_registers.h"

#include "../tvm/shuffles.h"
#include "block_reduce.h"

namespace tl {
namespace {

constexpr DLDataType kWord{kDLUInt, 32, 1}, kAllLanes{kDLUInt, 64, 1};

/*! Bit `k` of a number that is not negative. */
Expr BitOf(const Expr& x, int k) { return FloorModOf(FloorDivOf(x, int64_t(1) << k), 2); }

/*! Terms that share no bits are added, others combined by xor. */
class BitSum {
 public:
  explicit BitSum(bool is_sum) : is_sum_(is_sum) {}
  void Add(const Expr& term, int64_t bits) {
    const bool overlaps = (used_ & bits) && !is_sum_;
    used_ |= bits;
    sum_ = !sum_.defined() ? term : overlaps ? XorOf(sum_, term) : sum_ + term;
  }
  Expr Get() const { return sum_.defined() ? sum_ : Expr(MakeInt(0)); }

 private:
  bool is_sum_;
  int64_t used_ = 0;
  Expr sum_;
};

/*! A linear map's value, where `x` has as many bits as there are columns. Neighbouring bits that
 * become neighbouring bits are one term. */
Expr ValueOf(const BitColumns& columns, const Expr& x, bool is_sum = false) {
  BitSum sum(is_sum);
  for (size_t k = 0; k < columns.size();) {
    const int64_t column = columns[k];
    size_t end = k + 1;
    const bool is_bit = (column & (column - 1)) == 0;
    while ((is_bit || is_sum) && end < columns.size() && columns[end] == column << (end - k)) ++end;
    const int64_t extent = int64_t(1) << (end - k);
    if (column) {
      Expr digit = FloorDivOf(x, int64_t(1) << k);
      if (end < columns.size()) digit = FloorModOf(digit, extent);
      sum.Add(digit * column, is_bit ? (extent - 1) * column : column);
    }
    k = end;
  }
  return sum.Get();
}

/*! Whether an odd number of the bits is set. */
Expr IsOdd(const Expr& x, int64_t bits) {
  Expr parity;
  for (int k = 0; bits >> k; ++k) {
    if (!(bits >> k & 1)) continue;
    parity = parity.defined() ? XorOf(parity, BitOf(x, k)) : BitOf(x, k);
  }
  return EqualOf(parity, MakeInt(1));
}

Expr Flipped(const Expr& x, int64_t bits) { return bits ? XorOf(x, MakeInt(bits)) : x; }

/*! The bits of an element in the low bits of a word, and back. */
Expr ToWord(const Expr& element, DLDataType t) {
  if (t.code == kDLBool) return CastTo(kWord, element);
  const DLDataType bits{kDLUInt, t.bits, 1};
  return CastTo(kWord, CallOp("tirx.reinterpret", {element}, PrimTy(bits)));
}
Expr FromWord(const Expr& word, DLDataType t) {
  const DLDataType bits{kDLUInt, t.bits, 1};
  if (t.code == kDLBool) return NotEqualOf(CastTo(bits, word), MakeInt(bits, 0));
  return CallOp("tirx.reinterpret", {CastTo(bits, word)}, PrimTy(t));
}

class Emitter {
 public:
  Emitter(const WarpShuffle& plan, const Var& from, const Var& to, LoweringScope* scope,
          const Span& span)
      : plan_(plan),
        from_(from),
        to_(to),
        scope_(scope),
        span_(span),
        type_(ShuffledType(DTypeOf(from), DTypeOf(to))),
        in_words_(type_.bits < kWord.bits),
        receiver_(Flipped(scope->thread, plan.first_target)),
        sender_(Flipped(scope->thread, plan.first_source)) {}

  Stmt Block(int64_t first_source, int64_t first_target) {
    const int64_t source_count = int64_t(1) << plan_.source.parts.size();
    Var held = New("held", type_, source_count);
    Each(source_count, [&](const Expr& r) {
      const Expr reg = ValueOf(plan_.source.parts, r, plan_.source.is_sum) + first_source;
      const Expr value = CastTo(type_, LoadOf(from_, {reg}));
      return MakeStore(held, WhereHeld(value, r), {r}, span_);
    });
    held = Reordered(held, source_count, plan_.sends, sender_);
    const Var words = Exchange(held);
    const int64_t target_count = int64_t(1) << plan_.target.parts.size();
    Var kept = Keep(words, target_count);
    BitColumns order = plan_.keeps;
    for (int64_t& column : order) column &= target_count - 1;
    kept = Reordered(kept, target_count, order, receiver_);
    Each(target_count, [&](const Expr& r) {
      const Expr reg = ValueOf(plan_.target.parts, r, plan_.target.is_sum) + first_target;
      const DLDataType type = DTypeOf(to_);
      return MakeStore(to_, CastTo(type, LoadOf(kept, {r})), {reg}, span_);
    });
    return MakeSeq(std::exchange(out_, {}));
  }

 private:
  /*! A value of the source; 0 in threads that hold none. */
  Expr WhereHeld(const Expr& value, const Expr& reg) const {
    const auto is_zero = [](int64_t column) { return column == 0; };
    const auto all_zero = [&](const BitColumns& columns) { return AllOf(columns, is_zero); };
    const auto [threads, registers] = std::pair(plan_.empty_threads, plan_.empty_registers);
    if (all_zero(threads) && all_zero(registers)) return value;
    Expr left = ValueOf(threads, sender_);
    if (!all_zero(registers)) left = XorOf(left, ValueOf(registers, reg));
    return IfThenElseOf(EqualOf(left, MakeInt(0)), value, ZeroOf(type_));
  }

  /*! The words of all rounds, those that stay in the thread first. */
  Var Exchange(const Var& held) {
    const DLDataType type = in_words_ ? kWord : type_;
    const Var words = New("words", type, plan_.words);
    const auto word = [&](const Expr& k) {
      const BitColumns of_word(plan_.sent_register.begin() + plan_.element_bits,
                               plan_.sent_register.end());
      const BitColumns of_element(plan_.sent_register.begin(),
                                  plan_.sent_register.begin() + plan_.element_bits);
      const Expr first = ValueOf(of_word, k);
      if (!in_words_) return LoadOf(held, {first});
      Expr all;
      for (int64_t e = 0; e < int64_t(1) << plan_.element_bits; ++e) {
        const Expr element = LoadOf(held, {Flipped(first, Apply(of_element, e))});
        const Expr bits = ToWord(element, type_);
        const Expr placed = e ? ShiftLeftOf(bits, MakeInt(kWord, e * type_.bits)) : bits;
        all = e ? BitOrOf(all, placed) : placed;
      }
      return all;
    };
    const int64_t kept = plan_.kept_words;
    Each(kept, [&](const Expr& k) { return MakeStore(words, word(k), {k}, span_); });
    const int64_t lanes = scope_->target->warp_threads;
    const Expr mask = lanes == kWord.bits ? MakeInt(kWord, 0xffffffff) : MakeInt(kAllLanes, -1);
    const BitColumns of_word(plan_.lane_of_round.begin() + plan_.element_bits,
                             plan_.lane_of_round.end());
    BitColumns of_thread = plan_.lanes;
    for (int64_t& column : of_thread) column &= lanes - 1;
    const Expr lane = Flipped(ValueOf(of_thread, receiver_), plan_.first_source & (lanes - 1));
    Each(plan_.words - kept, [&](const Expr& n) {
      const Expr k = n + kept;
      const Expr from = XorOf(lane, ValueOf(of_word, k));
      const Expr got = CallOp(kShuffleSync, {mask, word(k), from, MakeInt(lanes)}, PrimTy(type));
      return MakeStore(words, got, {k}, span_);
    });
    return words;
  }

  /*! The element that the thread keeps, of those of all rounds. */
  Var Keep(const Var& words, int64_t count) {
    const Var kept = New("kept", type_, count);
    int further = 0;
    while (count << further < plan_.words << plan_.element_bits) ++further;
    const BitColumns of_register(plan_.round_of.begin(), plan_.round_of.end() - further);
    BitColumns choice = plan_.keeps;
    for (int64_t& column : choice) column /= count;
    for (int64_t x = 0; x < int64_t(1) << further; ++x) {
      Each(count, [&](const Expr& c) {
        const Expr round = Flipped(ValueOf(of_register, c), Apply(plan_.round_of, x * count));
        const int64_t elements = int64_t(1) << plan_.element_bits;
        Expr value = LoadOf(words, {FloorDivOf(round, elements)});
        if (in_words_ && elements > 1) {
          const Expr shift = CastTo(kWord, FloorModOf(round, elements) * type_.bits);
          value = ShiftRightOf(value, shift);
        }
        if (in_words_) value = FromWord(value, type_);
        if (x) {
          const Expr is_own = EqualOf(ValueOf(choice, receiver_), MakeInt(x));
          value = IfThenElseOf(is_own, value, LoadOf(kept, {c}));
        }
        return MakeStore(kept, value, {c}, span_);
      });
    }
    return kept;
  }

  /*! Register r becomes what register r ^ (the map's value) was. */
  Var Reordered(Var registers, int64_t count, const BitColumns& order, const Expr& thread) {
    for (const LaneSwap& swap : LaneSwaps(order)) {
      const Var next = New("turned", type_, count);
      const Expr swaps = IsOdd(thread, swap.threads);
      Each(count, [&](const Expr& r) {
        const Expr other = LoadOf(registers, {XorOf(r, MakeInt(swap.offset))});
        return MakeStore(next, IfThenElseOf(swaps, other, LoadOf(registers, {r})), {r}, span_);
      });
      registers = next;
    }
    return registers;
  }

  Var New(const char* name, DLDataType type, int64_t count) {
    const Var v = MakeBuffer(std::string(to_->name) + "_" + name, type, {MakeInt(count)}, "local");
    out_.push_back(MakeAlloc(v));
    return v;
  }

  template <typename Body>
  void Each(int64_t count, Body body) {
    if (count == 0) return;
    const Var v = MakeVar("r");
    out_.push_back(UnrolledFor(v, count, body(v), span_));
  }

  const WarpShuffle& plan_;
  const Var &from_, &to_;
  LoweringScope* scope_;
  const Span& span_;
  DLDataType type_;
  bool in_words_;
  /*! The thread's number as the destination counts, and as the source does. */
  Expr receiver_, sender_;
  std::vector<Stmt> out_;
};

}  // namespace

DLDataType ShuffledType(DLDataType from, DLDataType to) { return to.bits < from.bits ? to : from; }

Stmt ShuffleRegisters(const WarpShuffle& plan, const Var& from, const Var& to, LoweringScope* scope,
                      const Span& span) {
  Emitter emitter(plan, from, to, scope, span);
  std::vector<Stmt> out;
  for (const auto& [source, target] : plan.blocks) out.push_back(emitter.Block(source, target));
  return MakeSeq(out);
}

}  // namespace tl
