/*!
 * Layouts are finite functions.
 *
 * A tile's shape is static and small, so a layout is a finite function, and every question about it
 * is decided by looking at its table: equality, injectivity, the extent of its outputs, its
 * inverse. No prover, no time limit, no dependence on sizes being powers of two.
 *
 *   Layout    index tuple -> tuple of physical coordinates (a shared tile's place in memory)
 *   Fragment  index tuple, replica -> (thread, register) (a tile spread over the registers of a
 * block)
 *
 * Each is kept as expressions over placeholder variables, which is what users write and code
 * generation substitutes into; its table is computed when a question first needs it, and kept. A
 * worked example, the 4x4 layout (i, j) -> 4 i + (j xor i):
 *
 *        j=0  1  2  3
 *   i=0    0  1  2  3
 *   i=1    5  4  7  6
 *   i=2   10 11  8  9
 *   i=3   15 14 13 12
 *
 * The table shows at once that it is a bijection on 16 places, that its widest contiguous run is
 * one element, and that a column touches four different places modulo 4 (no bank conflict), where
 * the row-major layout touches one.
 *
 * More examples: the 8x8 tile of one mma register, thread = 4 i + j / 2, register = j % 2; a
 * row-major 16-byte partition over 128 threads, flat = 32 i + j, thread = flat / 8 % 128, register
 * = flat / 1024 * 8 + flat % 8.
 *
 * A tensor's layout may have symbols as extents, and no table then: see tensor_box.h.
 */
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "int_program.h"

namespace tl {

/*! A value that is computed once, for whichever thread asks first. A copy, which someone is about
 * to change, has none yet. */
template <typename T>
class Lazy {
 public:
  Lazy() = default;
  Lazy(const Lazy&) {}
  Lazy& operator=(const Lazy&) = delete;
  template <typename F>
  const T& Get(F compute) const {
    std::call_once(once_, [&] { value_ = compute(); });
    return value_;
  }

 private:
  mutable std::once_flag once_;
  mutable T value_;
};

/*! Not changed once it was asked for a table: those are kept. */
class LayoutNode : public Object {
 public:
  Array<Var> vars;
  Array<Expr> shape;
  /*! Physical coordinates; for a fragment the one register index. */
  Array<Expr> index;
  /*! The span of the hardware's swizzle that the layout is for elements of `swizzle_bits`: 128, 64
   * or 32 bytes, or 0 for row-major memory of any elements; kNoSwizzle for every other layout.
   * Known where a layout is made (swizzle.h), and kept by ExpandLayout. */
  int64_t swizzle_bytes = kNoSwizzle, swizzle_bits = 0;
  static constexpr int64_t kNoSwizzle = -1;
  /*! The span for elements of so many bits. */
  std::optional<int64_t> SwizzleBytes(int64_t bits) const {
    if (swizzle_bytes == kNoSwizzle || (swizzle_bytes > 0 && swizzle_bits != bits)) return {};
    return swizzle_bytes;
  }

  std::vector<int64_t> Shape() const;
  /*! Exact extents of the physical coordinates: largest value + 1. */
  const std::vector<int64_t>& OutputShape() const;
  /*! Every input point in row-major order, `index` evaluated at each: size points x coordinates. */
  const std::vector<int64_t>& Table() const;
  /*! Every input point in row-major order: where it lies in the row-major box of OutputShape(). */
  std::vector<int64_t> Addresses() const;
  Array<Expr> MapIndex(const Array<Expr>& input) const;

  static constexpr bool _type_mutable = true;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO("tl.Layout", LayoutNode, Object);

 private:
  Lazy<SharedTable> table_;
  Lazy<std::vector<int64_t>> output_shape_;
};
class Layout : public ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Layout, ObjectRef, LayoutNode);
};

/*! A digit of an input coordinate: (x / divisor) % extent, worth a stride in the thread or in the
 * register number. */
struct Digit {
  size_t dim;
  int64_t divisor;
  int64_t extent;
  int64_t thread_stride;
  int64_t register_stride;
};

class FragmentNode : public LayoutNode {
 public:
  Expr thread;
  /*! Each element is held by `replicate` threads; `thread` reads this variable in [0, replicate).
   */
  Var replica;
  int64_t replicate = 1;

  int64_t ThreadExtent() const;
  int64_t RegisterExtent() const;
  /*! The row-major number of the element that each register of each thread holds, -1 where none:
   * ThreadExtent() x RegisterExtent() numbers. */
  const std::vector<int64_t>& HeldElements() const;
  /*! Elements along the last dimension that sit in consecutive registers, starting at register
   * multiples of the result. */
  int64_t ContiguousRegisters() const;
  /*! The digits of every coordinate, the replica last; nullopt where the fragment is not
   * mixed-radix in its coordinates (inverse.h). */
  const std::optional<std::vector<Digit>>& Digits() const;
  /*! `thread` at every (input point, replica), replica fastest. */
  const std::vector<int64_t>& ThreadTable() const;
  Expr MapThread(const Array<Expr>& input, const Expr& replica_value) const;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tl.Fragment", FragmentNode, LayoutNode);

 private:
  Lazy<SharedTable> thread_table_;
  Lazy<int64_t> thread_extent_, contiguous_registers_;
  Lazy<std::vector<int64_t>> held_elements_;
  Lazy<std::optional<std::vector<Digit>>> digits_;
};
class Fragment : public Layout {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Fragment, Layout, FragmentNode);
};

Layout MakeLayout(const Array<Var>& vars, const std::vector<int64_t>& shape,
                  const Array<Expr>& index);
/*! Who makes the same fragment again within the same thread, if not too much later, gets the first
 * one, with all that is known of it: operators of a program infer the same few layouts. Its `vars`
 * and `replica` are those that it was made with first. */
Fragment MakeFragment(const Array<Var>& vars, const std::vector<int64_t>& shape, const Expr& index,
                      const Expr& thread, const Var& replica, int64_t replicate);
/*! Row-major identity: physical coordinates equal logical ones. */
Layout MakeLinearLayout(const std::vector<int64_t>& shape);

/*! Same function: same shape and the same table (for fragments threads and registers). */
bool IsSameLayout(const Layout& a, const Layout& b);
/*! No two elements share a place. */
bool IsInjective(const Layout& layout);
/*! What makes a layout no placement of elements: a negative place, or a place of two elements (the
 * same register of a thread for a fragment). Empty if nothing does. */
std::string PlacementDefect(const Layout& layout);
/*! The widest power of two such that aligned groups of so many elements along the last dimension
 * lie at consecutive addresses, the first a multiple of the width. */
int64_t ContiguousElements(const Layout& layout);
/*! Prepends identity dimensions: the versions of a pipelined buffer. */
Layout ExpandLayout(const Layout& layout, const std::vector<int64_t>& leading);
/*! Makes dimension `dim` `factor` times as long; the number of the repetition becomes a new leading
 * coordinate. */
Layout RepeatLayout(const Layout& layout, size_t dim, int64_t factor);
/*!
 * The same memory seen with another shape, element k in row-major order staying element k. An
 * element has old_bits before and new_bits after: a wider one is several old ones that lie side by
 * side. ValueError where the sizes differ or they do not lie so.
 */
Layout ReshapeLayout(const Layout& layout, const std::vector<int64_t>& shape, int64_t old_bits = 1,
                     int64_t new_bits = 1);

/*!
 * Tiles a fragment: input coordinate i_d splits into block q_d = i_d / old_d and inner i_d % old_d,
 * and the linear block number (first dimension fastest if `first_dim_fastest`) adds to the threads
 * if `on_thread`, else to the registers.
 */
Fragment RepeatFragment(const Fragment& base, const std::vector<int64_t>& repeats, bool on_thread,
                        bool first_dim_fastest);
/*! Holds each element n times as often; the copies use new threads above the old ones. */
Fragment ReplicateFragment(const Fragment& base, int64_t n);
/*! Drops the digits of the replica's number that no thread depends on. */
Fragment CondenseReplicas(const Fragment& base);
/*! The fragment of the transposed tile; `base` has two dimensions. */
Fragment TransposeFragment(const Fragment& base);
/*! (index tuple, replica) -> (thread, register) as a layout; without the replica's dimension if
 * there is one only. */
Layout PlaceOf(const Fragment& f);

std::vector<Var> ToVector(const Array<Var>& vars);
std::vector<int64_t> ToVector(const Array<int64_t>& values);
int64_t Product(const std::vector<int64_t>& values);
/*!
 * The layout from places back to elements: its input shape is the output shape of `layout`. nullopt
 * with the reason where places are empty or hold two elements, or where the inverse is not of the
 * form that layout_inverse.cc looks for.
 */
std::optional<Layout> InvertLayout(const Layout& layout, std::string* reason);
/*! The function on one line. */
std::string LayoutLine(const Layout& layout);
/*! One screen of text: the line, and for small tiles a grid: of thread:register for a fragment, of
 * addresses for a layout. */
std::string LayoutText(const Layout& layout);

}  // namespace tl
