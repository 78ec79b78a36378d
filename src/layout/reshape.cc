/*!
 * Layouts made from others by changing the shape: repeat, reshape, fewer replicas, transpose.
 */
#include "../tvm/registry.h"
#include "layout.h"

namespace tl {
namespace {

/*! Coordinates of element `flat` in a box, row-major. */
Array<Expr> Unflatten(Expr flat, const std::vector<int64_t>& shape) {
  std::vector<Expr> out(shape.size(), Expr());
  for (size_t d = shape.size(); d-- > 0;) {
    out[d] = d ? FloorModOf(flat, shape[d]) : flat;
    if (d) flat = FloorDivOf(flat, shape[d]);
  }
  return Array<Expr>(out.begin(), out.end());
}

struct Box {
  Array<Var> vars;
  Expr flat = MakeInt(0);
  explicit Box(const std::vector<int64_t>& shape) {
    for (size_t d = 0; d < shape.size(); ++d) {
      vars.push_back(MakeVar("i" + std::to_string(d)));
      flat = flat * shape[d] + vars[d];
    }
  }
};

/*! Groups of `width` elements lie side by side: same thread, same coordinates but for the last,
 * which counts up from a multiple of the width. */
bool LieSideBySide(const Layout& layout, int64_t width) {
  const std::vector<int64_t>& table = layout->Table();
  const size_t coords = layout->index.size();
  const size_t elements = table.size() / coords;
  const auto* f = layout.as<FragmentNode>();
  const std::vector<int64_t> threads = f ? f->ThreadTable() : std::vector<int64_t>();
  for (size_t k = 0; k < elements; ++k) {
    const size_t lane = k % width, first = k - lane;
    for (size_t c = 0; c + 1 < coords; ++c) {
      if (table[k * coords + c] != table[first * coords + c]) return false;
    }
    const int64_t start = table[first * coords + coords - 1];
    if (start % width || table[k * coords + coords - 1] != start + static_cast<int64_t>(lane))
      return false;
    for (int64_t r = 0; f && r < f->replicate; ++r) {
      if (threads[k * f->replicate + r] != threads[first * f->replicate + r]) return false;
    }
  }
  return true;
}

}  // namespace

Layout RepeatLayout(const Layout& layout, size_t dim, int64_t factor) {
  std::vector<int64_t> shape = layout->Shape();
  Array<Var> vars;
  Array<Expr> inner;
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar(layout->vars[d]->name));
    inner.push_back(d == dim ? FloorModOf(vars[d], shape[d]) : Expr(vars[d]));
  }
  Array<Expr> index = {FloorDivOf(vars[dim], shape[dim])};
  for (const Expr& e : layout->MapIndex(inner)) index.push_back(e);
  shape[dim] *= factor;
  return MakeLayout(vars, shape, index);
}

Layout ReshapeLayout(const Layout& layout, const std::vector<int64_t>& shape, int64_t old_bits,
                     int64_t new_bits) {
  const std::vector<int64_t> old_shape = layout->Shape();
  if (Product(old_shape) * old_bits != Product(shape) * new_bits) {
    TVM_FFI_THROW(ValueError) << "reshape: found " << Product(old_shape) << " elements of "
                              << old_bits << " bits and " << Product(shape) << " of " << new_bits
                              << ", wanted the same size";
  }
  const bool narrower = old_bits % new_bits == 0;
  const int64_t ratio = narrower ? old_bits / new_bits : new_bits / old_bits;
  if (!narrower && (new_bits % old_bits || !LieSideBySide(layout, ratio))) {
    TVM_FFI_THROW(ValueError) << "reshape: found elements of " << new_bits
                              << " bits whose parts of " << old_bits
                              << " bits do not lie side by side in\n  " << LayoutLine(layout)
                              << "\nwanted a layout that keeps them together";
  }
  Box box(shape);
  Array<Expr> old = Unflatten(narrower ? FloorDivOf(box.flat, ratio) : box.flat * ratio, old_shape);
  Array<Expr> index = layout->MapIndex(old);
  const size_t last = index.size() - 1;
  index.Set(last, narrower ? index[last] * ratio + FloorModOf(box.flat, ratio)
                           : FloorDivOf(index[last], ratio));
  const auto* f = layout.as<FragmentNode>();
  if (!f) return MakeLayout(box.vars, shape, index);
  return MakeFragment(box.vars, shape, index[0], f->MapThread(old, f->replica), f->replica,
                      f->replicate);
}

namespace {

/*! Digits of a fragment's replica number, (rep / step) % extent. */
class ReplicaDigits {
 public:
  explicit ReplicaDigits(const Fragment& f) : n_(f->replicate), threads_(f->ThreadTable()) {}

  /*! The largest extent of a digit at `step` that no thread depends on, 1 if there is none. */
  int64_t Unused(int64_t step) const {
    for (int64_t extent = n_ / step; extent > 1; --extent) {
      if (n_ / step % extent == 0 && !Depends(step, extent)) return extent;
    }
    return 1;
  }

  /*! The smallest extent of a digit at `step` that ends at an unused one or at the end. */
  int64_t Used(int64_t step) const {
    int64_t extent = 2;
    while (n_ / step % extent || (step * extent < n_ && Unused(step * extent) == 1)) ++extent;
    return extent;
  }

 private:
  bool Depends(int64_t step, int64_t extent) const {
    for (size_t element = 0; element < threads_.size(); element += n_) {
      for (int64_t r = 0; r < n_; ++r) {
        const int64_t without = r - r / step % extent * step;
        if (threads_[element + r] != threads_[element + without]) return true;
      }
    }
    return false;
  }

  int64_t n_;
  std::vector<int64_t> threads_;
};

}  // namespace

Fragment CondenseReplicas(const Fragment& base) {
  const ReplicaDigits digits(base);
  Var replica = MakeVar("rep");
  Expr kept = MakeInt(0);
  int64_t kept_extent = 1;
  for (int64_t step = 1; step < base->replicate;) {
    int64_t extent = digits.Unused(step);
    if (extent == 1) {
      extent = digits.Used(step);
      kept = kept + FloorModOf(FloorDivOf(replica, kept_extent), extent) * step;
      kept_extent *= extent;
    }
    step *= extent;
  }
  Array<Expr> same;
  for (const Var& v : base->vars) same.push_back(v);
  return MakeFragment(base->vars, base->Shape(), base->index[0], base->MapThread(same, kept),
                      replica, kept_extent);
}

Fragment TransposeFragment(const Fragment& base) {
  const std::vector<int64_t> shape = base->Shape();
  const Array<Expr> swapped = {base->vars[1], base->vars[0]};
  return MakeFragment(base->vars, {shape[1], shape[0]}, base->MapIndex(swapped)[0],
                      base->MapThread(swapped, base->replica), base->replica, base->replicate);
}

Layout PlaceOf(const Fragment& f) {
  Array<Var> vars = f->vars;
  std::vector<int64_t> shape = f->Shape();
  if (f->replicate > 1) {
    vars.push_back(f->replica);
    shape.push_back(f->replicate);
  }
  return MakeLayout(vars, shape, {f->thread, f->index[0]});
}

namespace {

Registration reshape_registration([] {
  RegisterFunction("LayoutRepeat", [](Layout l, int64_t dim, int64_t factor) {
    return RepeatLayout(l, dim, factor);
  });
  RegisterFunction("LayoutExpand", [](Layout l, Array<int64_t> leading) {
    return ExpandLayout(l, ToVector(leading));
  });
  RegisterFunction("LayoutReshape", [](Layout l, Array<int64_t> shape, int64_t num, int64_t den) {
    return ReshapeLayout(l, ToVector(shape), num, den);
  });
  RegisterFunction("FragmentRepeat",
                   [](Fragment f, Array<int64_t> repeats, bool on_thread, bool first_fastest) {
                     return RepeatFragment(f, ToVector(repeats), on_thread, first_fastest);
                   });
  RegisterFunction("FragmentReplicate", ReplicateFragment);
  RegisterFunction("FragmentCondense", CondenseReplicas);
});

}  // namespace
}  // namespace tl
