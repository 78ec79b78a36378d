/*!
 * Layouts of tensors: too large for a table, and of extents that may be symbols. What has to be
 * known of one is shown by digits: an index in mixed radix, such as l = l // 8 * 8 + l % 8, is the
 * sum of its digits, and a layout that gives each digit of each index a stride of its own, such
 * that the strides of a coordinate are a mixed radix again, gives each element a place of its own
 * and leaves no place of its box without an element.
 *
 * Example: (l, d) -> (l // 8, d // 8, d % 2, 4 * (l % 8) + d % 8 // 2) over n x 64, n a multiple of
 * 8, has the digits l % 8 (extent 8, stride 4), l // 8 (n / 8), d % 2 (2), d // 2 % 4 (4, stride 1)
 * and d // 8 (8). Its box is (n // 8) x 8 x 2 x 32.
 */
#pragma once
#include <string>

#include "../tvm/analyzer.h"
#include "layout.h"

namespace tl {

struct TensorBox {
  /*! Extents of the physical coordinates: as many places as elements. */
  Array<Expr> extents;
  /*! What is wrong with the layout, as the words behind "found", what is wanted, and the repair;
   * empty if nothing is. */
  std::string defect, wanted;
};

/*! The box of places of a layout, which may be of any size; what the analyzer knows of its extents
 * counts. What digits do not show, as a layout with xor, a table does if it is small. */
TensorBox BoxOfTensor(const Layout& layout, Analyzer* analyzer);

}  // namespace tl
