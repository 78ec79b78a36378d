#include "inverse.h"

#include <algorithm>
#include <numeric>

#include "../tvm/analyzer.h"
#include "int_program.h"

namespace tl {
namespace {

/*! Thread and register at every point of a box whose last dimension is the replica. */
struct Tables {
  std::vector<int64_t> shape;
  size_t size = 0;
  /*! The fragment's own tables, or those below. */
  const int64_t* thread = nullptr;
  const int64_t* reg = nullptr;
  std::vector<int64_t> ordered_thread, ordered_reg;
};

/*! Tables over the coordinates, or, with an order of the dimensions, over the number of an element
 *  that counts along the last of them first. */
Tables MakeTables(const Fragment& f, const std::vector<size_t>& order) {
  Tables t;
  t.shape = f->Shape();
  std::vector<int64_t> stride(t.shape.size(), 1), numbered;
  for (size_t d = t.shape.size(); d-- > 1;) stride[d - 1] = stride[d] * t.shape[d];
  numbered = {0};
  for (size_t d : order) {
    std::vector<int64_t> longer;
    longer.reserve(numbered.size() * t.shape[d]);
    for (int64_t k : numbered) {
      for (int64_t x = 0; x < t.shape[d]; ++x) longer.push_back(k + x * stride[d]);
    }
    numbered = std::move(longer);
  }
  const int64_t count = Product(t.shape);
  if (!order.empty()) t.shape = {count};
  t.shape.push_back(f->replicate);
  const std::vector<int64_t>&thread = f->ThreadTable(), &reg = f->Table();
  t.size = count * f->replicate;
  if (order.empty() && f->replicate == 1) {
    t.thread = thread.data();
    t.reg = reg.data();
    return t;
  }
  t.ordered_thread.reserve(t.size);
  t.ordered_reg.reserve(t.size);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t element = order.empty() ? k : numbered[k];
    const auto first = thread.begin() + element * f->replicate;
    t.ordered_thread.insert(t.ordered_thread.end(), first, first + f->replicate);
    t.ordered_reg.insert(t.ordered_reg.end(), f->replicate, reg[element]);
  }
  t.thread = t.ordered_thread.data();
  t.reg = t.ordered_reg.data();
  return t;
}

/*! Reads the digits of dimension d along its axis through the origin; false where no radix fits. */
bool ReadFragmentDigits(const Tables& t, size_t d, std::vector<Digit>* digits) {
  int64_t axis = 1;
  for (size_t k = d + 1; k < t.shape.size(); ++k) axis *= t.shape[k];
  auto at = [&](const int64_t* table, int64_t x) { return table[x * axis] - table[0]; };
  const int64_t extent = t.shape[d];
  for (int64_t divisor = 1; divisor < extent;) {
    const int64_t count = (extent + divisor - 1) / divisor;
    const int64_t ts = at(t.thread, divisor), rs = at(t.reg, divisor);
    if ((ts == 0) == (rs == 0)) return false;
    int64_t e = 1;
    while (e < count && at(t.thread, e * divisor) == e * ts && at(t.reg, e * divisor) == e * rs)
      ++e;
    digits->push_back({d, divisor, e, ts, rs});
    divisor *= e;
  }
  return true;
}

/*! The sum over the axes of what each index adds to the first number, at every point. */
std::vector<int64_t> SumOverAxes(int64_t first, const std::vector<std::vector<int64_t>>& added) {
  std::vector<int64_t> sums = {first}, longer;
  for (const std::vector<int64_t>& axis : added) {
    if (axis.size() == 1) continue;  // adds nothing
    longer.resize(sums.size() * axis.size());
    int64_t* to = longer.data();
    for (int64_t sum : sums) {
      for (int64_t x : axis) *to++ = sum + x;
    }
    std::swap(sums, longer);
  }
  return sums;
}

/*! The digits explain the whole table, not only the axes. */
bool ExplainTable(const Tables& t, const std::vector<Digit>& digits) {
  const auto explains = [&](const int64_t* table, int64_t Digit::* stride) {
    std::vector<std::vector<int64_t>> added;
    for (int64_t extent : t.shape) added.emplace_back(extent, 0);
    for (const Digit& g : digits) {
      for (int64_t i = 0; i < t.shape[g.dim]; ++i) {
        added[g.dim][i] += i / g.divisor % g.extent * (g.*stride);
      }
    }
    const std::vector<int64_t> sums = SumOverAxes(table[0], added);
    return std::equal(sums.begin(), sums.end(), table, table + t.size);
  };
  return explains(t.thread, &Digit::thread_stride) && explains(t.reg, &Digit::register_stride);
}

/*!
 * Solves output - base = sum(digit * stride) for the digits of one output, which runs over [0,
 * extent). Adds to `coords`, and to `guards` where some outputs hold nothing.
 */
bool SolveOutput(std::vector<Digit> digits, bool thread, const Expr& output, int64_t base,
                 int64_t extent, std::vector<Expr>* coords, std::vector<Expr>* guards) {
  const Expr value = base ? output - MakeInt(output->dtype(), base) : output;
  const int64_t value_extent = extent - base;
  if (base) guards->push_back(output >= MakeInt(output->dtype(), base));
  auto stride = [thread](const Digit& g) { return thread ? g.thread_stride : g.register_stride; };
  digits.erase(
      std::remove_if(digits.begin(), digits.end(), [&](const Digit& g) { return !stride(g); }),
      digits.end());
  std::sort(digits.begin(), digits.end(),
            [&](const Digit& a, const Digit& b) { return stride(a) < stride(b); });
  int64_t used = 1;
  for (size_t k = 0; k < digits.size(); ++k) {
    const Digit& g = digits[k];
    if (stride(g) < used) return false;
    const int64_t below = used;
    used = stride(g) * g.extent;
    // A digit below a stride that is no multiple of its own is read from what that one leaves.
    Expr rest = value;
    int64_t reach = used;
    for (size_t a = k + 1; a < digits.size() && rest.same_as(value); ++a) {
      if (stride(digits[a]) % reach) rest = FloorModOf(value, stride(digits[a]));
      reach = stride(digits[a]) * digits[a].extent;
    }
    if (stride(g) % below) {
      guards->push_back(FloorModOf(rest, stride(g)) < MakeInt(value->dtype(), below));
    } else if (stride(g) > below) {
      guards->push_back(EqualOf(FloorModOf(FloorDivOf(rest, below), stride(g) / below),
                                MakeInt(value->dtype(), 0)));
    }
    Expr digit = FloorModOf(FloorDivOf(rest, stride(g)), g.extent);
    (*coords)[g.dim] = (*coords)[g.dim] + digit * g.divisor;
  }
  if (used < value_extent) guards->push_back(value < MakeInt(value->dtype(), used));
  return true;
}

std::optional<std::vector<Digit>> DigitsOfTables(const Tables& t) {
  std::vector<Digit> digits;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (!ReadFragmentDigits(t, d, &digits)) return std::nullopt;
  }
  if (!ExplainTable(t, digits)) return std::nullopt;
  return digits;
}

/*! The digits of the coordinates, or of the elements' number with an order of the dimensions. */
std::optional<std::vector<Digit>> DigitsInOrder(const Fragment& f,
                                                const std::vector<size_t>& order) {
  return order.empty() ? f->Digits() : DigitsOfTables(MakeTables(f, order));
}

std::optional<FragmentInverse> Invert(const Fragment& f, const std::vector<size_t>& order,
                                      const Expr& thread, const Expr& reg, int64_t num_threads) {
  const auto found = DigitsInOrder(f, order);
  if (!found) return std::nullopt;
  const std::vector<Digit>& digits = *found;
  std::vector<int64_t> box = f->Shape();
  if (!order.empty()) box = {Product(box)};
  box.push_back(f->replicate);

  std::vector<Expr> coords(box.size(), MakeInt(0));
  std::vector<Expr> guards;
  const bool solved =
      SolveOutput(digits, true, thread, f->ThreadTable()[0], num_threads, &coords, &guards) &&
      SolveOutput(digits, false, reg, f->Table()[0], f->RegisterExtent(), &coords, &guards);
  if (!solved) return std::nullopt;
  for (size_t d = 0; d < box.size(); ++d) {
    int64_t reach = 1;
    for (const Digit& g : digits) {
      if (g.dim == d) reach = std::max(reach, g.divisor * g.extent);
    }
    if (reach > box[d]) guards.push_back(coords[d] < MakeInt(box[d]));
  }

  FragmentInverse out;
  out.replica = coords.back();
  coords.pop_back();
  if (!order.empty()) {
    Expr flat = coords[0];
    const std::vector<int64_t> shape = f->Shape();
    coords.assign(shape.size(), MakeInt(0));
    for (size_t k = order.size(); k-- > 0;) {
      coords[order[k]] = k ? FloorModOf(flat, shape[order[k]]) : flat;
      flat = FloorDivOf(flat, shape[order[k]]);
    }
  }
  out.coords = Array<Expr>(coords.begin(), coords.end());
  out.guard = MakeInt(kBool, 1);
  for (const Expr& g : guards) out.guard = out.guard && g;
  return out;
}

/*! Fragments that fill every register of their threads may also be swizzled. */
std::optional<FragmentInverse> InvertBijection(const Fragment& f, const Expr& thread,
                                               const Expr& reg, int64_t num_threads) {
  std::string reason;
  const auto inverse = InvertLayout(PlaceOf(f), &reason);
  if (!inverse) return std::nullopt;
  FragmentInverse out;
  out.coords = (*inverse)->MapIndex({thread, reg});
  out.replica = MakeInt(0);
  if (f->replicate > 1) {
    out.replica = out.coords.back();
    out.coords.pop_back();
  }
  const int64_t threads = f->ThreadExtent();
  out.guard =
      threads < num_threads ? thread < MakeInt(thread->dtype(), threads) : Expr(MakeInt(kBool, 1));
  return out;
}

}  // namespace

std::optional<FragmentInverse> InvertFragment(const Fragment& f, const Expr& thread,
                                              const Expr& reg, int64_t num_threads) {
  if (auto inverse = Invert(f, {}, thread, reg, num_threads)) return inverse;
  std::vector<size_t> order(f->Shape().size());
  std::iota(order.begin(), order.end(), 0);
  do {
    if (auto inverse = Invert(f, order, thread, reg, num_threads)) return inverse;
  } while (order.size() <= 4 && std::next_permutation(order.begin(), order.end()));
  return InvertBijection(f, thread, reg, num_threads);
}

const std::optional<std::vector<Digit>>& FragmentNode::Digits() const {
  return digits_.Get([&] { return DigitsOfTables(MakeTables(GetRef<Fragment>(this), {})); });
}

Fragment MakeReplicatedFragment(const std::vector<int64_t>& shape, int64_t num_threads) {
  if (shape.empty()) return MakeReplicatedFragment({1}, num_threads);
  Array<Var> vars;
  Expr index = MakeInt(0);
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    index = index * shape[d] + vars[d];
  }
  Var replica = MakeVar("rep");
  return MakeFragment(vars, shape, index, replica, replica, num_threads);
}

Fragment CondenseRegisters(const Fragment& f) {
  const std::vector<int64_t>& used = f->Table();
  const int64_t first = *std::min_element(used.begin(), used.end());
  int64_t step = 0;
  for (int64_t r : used) {
    step = std::gcd(step, r - first);
    if (step == 1) break;  // of nearly all fragments at the second register
  }
  if (first == 0 && step <= 1) return f;
  const Expr index = FloorDivOf(f->index[0] - MakeInt(first), std::max<int64_t>(step, 1));
  return MakeFragment(f->vars, f->Shape(), index, f->thread, f->replica, f->replicate);
}

Fragment ProjectFragment(const Fragment& f, const std::vector<bool>& keep, int64_t num_threads) {
  std::vector<int64_t> shape;
  Array<Var> vars;
  std::vector<Expr> coordinate(keep.size() + 1, Expr());
  const std::vector<int64_t> full = f->Shape();
  for (size_t d = 0; d < keep.size(); ++d) {
    if (!keep[d]) continue;
    shape.push_back(full[d]);
    vars.push_back(MakeVar("i" + std::to_string(vars.size())));
    coordinate[d] = vars.back();
  }
  std::optional<std::vector<Digit>> found = f->Digits();
  if (!found) return MakeReplicatedFragment(shape, num_threads);
  auto by = [](int64_t Digit::* stride) {
    return [stride](const Digit& a, const Digit& b) { return a.*stride < b.*stride; };
  };
  auto value = [&](const Digit& g) {
    return FloorModOf(FloorDivOf(coordinate[g.dim], g.divisor), g.extent);
  };
  std::vector<Digit>& digits = *found;
  Var replica = MakeVar("rep");
  Expr thread = MakeInt(f->ThreadTable()[0]), index = MakeInt(0);
  int64_t registers = 1, replicas = 1;
  std::stable_sort(digits.begin(), digits.end(), by(&Digit::register_stride));
  for (const Digit& g : digits) {
    if (!g.register_stride || !coordinate[g.dim].defined()) continue;
    index = index + value(g) * registers;
    registers *= g.extent;
  }
  std::stable_sort(digits.begin(), digits.end(), by(&Digit::thread_stride));
  for (const Digit& g : digits) {
    if (!g.thread_stride) continue;
    if (coordinate[g.dim].defined()) {
      thread = thread + value(g) * g.thread_stride;
    } else {
      thread = thread + FloorModOf(FloorDivOf(replica, replicas), g.extent) * g.thread_stride;
      replicas *= g.extent;
    }
  }
  if (vars.empty()) {
    vars.push_back(MakeVar("i0"));
    shape.push_back(1);
  }
  return MakeFragment(vars, shape, index, thread, replica, replicas);
}

}  // namespace tl
