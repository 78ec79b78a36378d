/*!
 * Operands of wgmma in shared memory, as its descriptors name them: a buffer of swizzled rows,
 * which are either those of the operand (K-major: elements along K side by side) or its elements of
 * one k (M- or N-major). PTX ISA, "Asynchronous warpgroup level matrix shared memory layout".
 */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../layout/layout.h"
#include "tile_op.h"

namespace tl {

/*! An operand of a gemm: `rows` of its rows (of A) or columns (of B) are one instruction's. */
struct WgmmaOperand {
  TileRegion region;
  bool k_major;
  int64_t rows;
  /*! Elements along K of one instruction. */
  int64_t k;
};

/*! The widest layout whose descriptors reach all of the operand; nullopt with the reason. */
std::optional<Layout> WgmmaLayout(const WgmmaOperand& operand, std::string* why);
/*! Why no descriptor reaches all of the operand in this layout; empty if one does. */
std::string WhyNotWgmmaLayout(const WgmmaOperand& operand, const Layout& layout);
/*! The widest layout of `root` in which descriptors reach all of the operands, which are names of
 * its memory. Undefined if there is none, as where two operands have rows of different lengths. */
Layout CommonWgmmaLayout(const Var& root, const std::vector<WgmmaOperand>& operands);

/*! What descriptors of an operand have in common, in bytes. */
struct WgmmaStrides {
  int span;
  /*! The descriptor's fields. */
  int64_t leading, stride;
  /*! From a descriptor of (0, 0) to one of (row, k); rows are multiples of the operand's `rows` (or
   * of 8 if K-major), k of an instruction's. */
  Expr Offset(const Expr& row, const Expr& k) const;

  bool k_major;
  /*! From a span to the one beside it. */
  int64_t beside;
  int element;
};
WgmmaStrides StridesOf(const WgmmaOperand& operand, const Layout& layout);

}  // namespace tl
