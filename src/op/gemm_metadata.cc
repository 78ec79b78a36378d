/*! Which elements of a sparse A are stored, as the lanes of a warp hold it. */
#include "gemm.h"

namespace tl {
namespace {

constexpr DLDataType kMetadataWord{kDLUInt, 32, 1};

/*! `bits` (16 or 32) bits of row `row` of the metadata from bit `first` on, a multiple of `bits`.
 */
Expr BitsOfRow(const GemmOp& op, const Expr& row, const Expr& first, int bits,
               LoweringScope* scope) {
  const TileRegion& e = *op.metadata;
  const DLDataType stored = DTypeOf(e.buffer);
  const DLDataType raw{kDLUInt, static_cast<uint8_t>(stored.bits), 1};
  auto element = [&](const Expr& column) {
    Array<Expr> at = e.Mins();
    const size_t lead = at.size() - 2;
    at.Set(lead, at[lead] + (op.trans_metadata ? column : row));
    at.Set(lead + 1, at[lead + 1] + (op.trans_metadata ? row : column));
    auto [buffer, indices] = scope->ToPhysical(e.buffer, at);
    return CastTo(kMetadataWord, CastTo(raw, LoadOf(buffer, indices)));
  };
  if (stored.bits > bits) {
    const Expr shift = CastTo(kMetadataWord, FloorModOf(first, stored.bits));
    return BitAndOf(ShiftRightOf(element(FloorDivOf(first, stored.bits)), shift),
                    MakeInt(kMetadataWord, (int64_t{1} << bits) - 1));
  }
  Expr value = element(FloorDivOf(first, stored.bits));
  for (int part = 1; part < bits / stored.bits; ++part) {
    value = BitOrOf(value, ShiftLeftOf(element(FloorDivOf(first, stored.bits) + part),
                                       MakeInt(kMetadataWord, part * stored.bits)));
  }
  return value;
}

}  // namespace

/*
 * PTX ISA, "Matrix fragments for multiply-accumulate operation with sparse matrix A", sparsity
 * selector 0, g = lane / 4. Of 32 bits to a row lane 4 g has bits 0 to 15 of rows g (low) and g +
 * 8 (high), lane 4 g + 1 bits 16 to 31. Of 64 bits lanes 4 g and 4 g + 1 have bits 0 to 31 of
 * rows g and g + 8, lanes 4 g + 2 and 4 g + 3 bits 32 to 63.
 */
Expr MetadataOfLane(const GemmOp& op, const Expr& row, const Expr& lane, const Expr& first,
                    int bits, LoweringScope* scope) {
  const Expr mine = row + FloorDivOf(lane, 4);
  if (bits == 32) {
    const Expr here = first + FloorModOf(lane, 2) * 16;
    return BitOrOf(
        BitsOfRow(op, mine, here, 16, scope),
        ShiftLeftOf(BitsOfRow(op, mine + 8, here, 16, scope), MakeInt(kMetadataWord, 16)));
  }
  constexpr int kHalfRow = 32;
  const Expr here = first + FloorModOf(FloorDivOf(lane, 2), 2) * kHalfRow;
  return BitsOfRow(op, mine + FloorModOf(lane, 2) * 8, here, kHalfRow, scope);
}

}  // namespace tl
