#include "reduce_plan.h"

#include <algorithm>

namespace tl {
namespace {

constexpr int64_t kNothing = -1;

/*! The kept digits of the source's register number, dense in the result's (as ProjectFragment). */
std::vector<ReducePlan::RegisterDigit> KeptRegisters(std::vector<Digit> digits, size_t dim,
                                                     size_t rank) {
  std::stable_sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) {
    return a.register_stride < b.register_stride;
  });
  std::vector<ReducePlan::RegisterDigit> kept;
  int64_t used = 1;
  for (const Digit& g : digits) {
    if (!g.register_stride || g.dim == dim || g.dim == rank) continue;
    kept.push_back({g.register_stride, g.extent, used});
    used *= g.extent;
  }
  return kept;
}

/*! The fragment with a dimension of extent 1 put in before dimension `dim`. */
Fragment WithUnitDimension(const Fragment& f, size_t dim) {
  Array<Var> vars;
  std::vector<int64_t> shape = f->Shape();
  shape.insert(shape.begin() + dim, 1);
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(d == dim ? MakeVar("one") : f->vars[d > dim ? d - 1 : d]);
  }
  return MakeFragment(vars, shape, f->index[0], f->thread, f->replica, f->replicate);
}

/*! A source's elements as parts of results, for checks. */
class Parts {
 public:
  Parts(const Fragment& source, size_t dim, const ReducePlan& plan, int64_t num_threads)
      : plan_(plan),
        num_threads_(num_threads),
        copies_(source->replicate),
        result_registers_(plan.result->RegisterExtent()),
        threads_(source->ThreadTable()),
        source_registers_(source->RegisterExtent()),
        source_register_(source->Table()),
        result_register_(plan.result->Table()) {
    const std::vector<int64_t> shape = source->Shape();
    for (size_t d = dim + 1; d < shape.size(); ++d) inner_ *= shape[d];
    extent_ = shape[dim];
  }

  /*! Each place of the result is of one result, and each register of the source contributes to the
   *  register of its result. */
  bool LandInTheirPlaces() const {
    std::vector<int64_t> owner(num_threads_ * result_registers_, kNothing);
    const std::vector<int64_t>& holders = plan_.result->ThreadTable();
    for (size_t k = 0; k < holders.size(); ++k) {
      const int64_t result = static_cast<int64_t>(k) / plan_.result->replicate;
      if (holders[k] >= num_threads_) return false;
      int64_t& place = owner[holders[k] * result_registers_ + result_register_[result]];
      if (place != kNothing) return false;
      place = result;
    }
    const std::vector<int64_t> target = RegistersOfResults();
    return ForEach([&](int64_t element, int64_t copy, int64_t result) {
      const int64_t thread = threads_[element * copies_ + copy];
      const int64_t reg = target[source_register_[element]];
      return owner[thread * result_registers_ + reg] == result;
    });
  }

  /*! The bits that ReducePlan::lanes means. Copies of the source are combined apart. */
  std::optional<int64_t> Lanes() const {
    const int64_t groups = static_cast<int64_t>(threads_.size()) / extent_;
    std::vector<int64_t> first(groups, kNothing);
    int64_t bits = 0;
    ForEach([&](int64_t element, int64_t copy, int64_t result) {
      const int64_t thread = threads_[element * copies_ + copy];
      int64_t& f = first[result * copies_ + copy];
      if (f == kNothing) f = thread;
      bits |= thread ^ f;
      return true;
    });
    std::vector<int64_t> taken(num_threads_ * result_registers_, kNothing);
    for (int64_t g = 0; g < groups; ++g) {
      if ((first[g] | bits) >= num_threads_) return std::nullopt;
      const int64_t reg = result_register_[g / copies_];
      int64_t& group = taken[(first[g] & ~bits) * result_registers_ + reg];
      if (group != kNothing) return std::nullopt;
      group = g;
    }
    return bits;
  }

 private:
  /*! Calls visit(element, copy, result of the element) until it returns false; false if it did. */
  template <typename Visit>
  bool ForEach(const Visit& visit) const {
    const int64_t elements = static_cast<int64_t>(source_register_.size());
    int64_t element = 0;
    for (int64_t outer = 0; outer < elements / (extent_ * inner_); ++outer) {
      for (int64_t x = 0; x < extent_; ++x) {
        for (int64_t inner = 0; inner < inner_; ++inner, ++element) {
          for (int64_t copy = 0; copy < copies_; ++copy) {
            if (!visit(element, copy, outer * inner_ + inner)) return false;
          }
        }
      }
    }
    return true;
  }
  /*! For each register of the source that of its result. */
  std::vector<int64_t> RegistersOfResults() const {
    std::vector<int64_t> out(source_registers_, 0);
    for (int64_t r = 0; r < source_registers_; ++r) {
      for (const ReducePlan::RegisterDigit& g : plan_.registers) {
        out[r] += r / g.stride % g.extent * g.result_stride;
      }
    }
    return out;
  }

  const ReducePlan& plan_;
  int64_t num_threads_, copies_, result_registers_, inner_ = 1, extent_ = 1;
  const std::vector<int64_t>& threads_;  // of each element and copy
  int64_t source_registers_;
  const std::vector<int64_t>&source_register_, &result_register_;
};

int64_t PowerOfTwoUpTo(int64_t n) {
  int64_t p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

}  // namespace

Expr ReducePlan::ResultRegister(const Expr& r) const {
  Expr index = MakeInt(0);
  for (const RegisterDigit& g : registers) {
    index = index + FloorModOf(FloorDivOf(r, g.stride), g.extent) * g.result_stride;
  }
  return index;
}

ReducePlan PlanReduce(const Fragment& source, size_t dim, const std::vector<int64_t>& result_shape,
                      int64_t num_threads) {
  const size_t rank = source->shape.size();
  std::vector<bool> keep(rank, true);
  keep[dim] = false;
  ReducePlan plan;
  plan.result = ProjectFragment(source, keep, num_threads);
  if (rank > 1 && result_shape.size() == rank) plan.result = WithUnitDimension(plan.result, dim);
  const auto digits = source->Digits();
  if (digits && source->Table()[0] == 0) {
    plan.registers = KeptRegisters(*digits, dim, rank);
    const Parts parts(source, dim, plan, num_threads);
    if (parts.LandInTheirPlaces()) {
      plan.lanes = parts.Lanes();
      return plan;
    }
  }
  plan.result = MakeReplicatedFragment(result_shape, num_threads);
  return plan;
}

namespace {

/*! Layout of a nest over `shape`. */
struct ShapeVars {
  Array<Var> vars;
  /*! Number of an element in row-major order, dimension `dim` left out. */
  Expr row = MakeInt(0);
  ShapeVars(const std::vector<int64_t>& shape, size_t dim) {
    for (size_t d = 0; d < shape.size(); ++d) {
      vars.push_back(MakeVar("i" + std::to_string(d)));
      if (d != dim) row = row * shape[d] + vars[d];
    }
  }
};

/*! Neighbouring vectors of the last dimension lie in neighbouring threads, so that memory is
 * accessed by rows. */
Fragment PlanColumns(const std::vector<int64_t>& shape, size_t dim, int64_t width,
                     int64_t num_threads) {
  const int64_t vectors = Product(shape) / shape[dim] / width;
  const int64_t threads = PowerOfTwoUpTo(num_threads);
  const int64_t at_once = std::min(PowerOfTwoUpTo(2 * vectors - 1), threads);
  const int64_t lanes = std::min(PowerOfTwoUpTo(2 * shape[dim] - 1), threads / at_once);
  const int64_t registers = (shape[dim] + lanes - 1) / lanes * width;
  const ShapeVars at(shape, dim);
  const Expr x = at.vars[dim], vector = FloorDivOf(at.row, width);
  return MakeFragment(at.vars, shape,
                      FloorDivOf(vector, at_once) * registers + FloorDivOf(x, lanes) * width +
                          FloorModOf(at.row, width),
                      FloorModOf(x, lanes) * at_once + FloorModOf(vector, at_once), MakeVar("rep"),
                      1);
}

}  // namespace

Fragment PlanReducible(const std::vector<int64_t>& shape, size_t dim, int64_t width,
                       int64_t num_threads) {
  if (dim + 1 < shape.size()) return PlanColumns(shape, dim, width, num_threads);
  const int64_t vectors = (shape[dim] + width - 1) / width;
  const int64_t lanes = std::min(PowerOfTwoUpTo(2 * vectors - 1), PowerOfTwoUpTo(num_threads));
  const int64_t at_once = num_threads / lanes, step = lanes * width;
  const int64_t registers = (shape[dim] + step - 1) / step * width;
  const ShapeVars at(shape, dim);
  const Expr x = at.vars[dim];
  return MakeFragment(
      at.vars, shape,
      FloorDivOf(at.row, at_once) * registers + FloorDivOf(x, step) * width + FloorModOf(x, width),
      FloorModOf(at.row, at_once) * lanes + FloorModOf(FloorDivOf(x, width), lanes), MakeVar("rep"),
      1);
}

}  // namespace tl
