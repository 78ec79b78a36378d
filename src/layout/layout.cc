#include "layout.h"

#include <tvm/ffi/extra/dataclass.h>
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <utility>

#include "../tvm/analyzer.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"

namespace tl {
namespace {

Expr SubstituteAll(const Expr& e, const Array<Var>& from, const Array<Expr>& to) {
  Substituter s;
  for (size_t i = 0; i < from.size(); ++i) s.map[from[i].get()] = to[i];
  return s.Mutate(e);
}

Array<Expr> ToExprs(const std::vector<int64_t>& values) {
  Array<Expr> out;
  for (int64_t v : values) out.push_back(MakeInt(v));
  return out;
}

/*! Simplifies over the box of the placeholder variables. */
struct BoxSimplifier {
  Analyzer analyzer;
  BoxSimplifier(const Array<Var>& vars, const Array<Expr>& shape) {
    for (size_t i = 0; i < vars.size(); ++i) {
      analyzer.Bind(vars[i], MakeInt(vars[i]->dtype(), 0), CastTo(vars[i]->dtype(), shape[i]));
    }
  }
};

}  // namespace

int64_t Product(const std::vector<int64_t>& values) {
  int64_t p = 1;
  for (int64_t v : values) p *= v;
  return p;
}

std::vector<Var> ToVector(const Array<Var>& vars) { return {vars.begin(), vars.end()}; }
std::vector<int64_t> ToVector(const Array<int64_t>& values) {
  return {values.begin(), values.end()};
}

std::vector<int64_t> LayoutNode::Shape() const {
  std::vector<int64_t> out;
  for (const Expr& e : shape) {
    const std::optional<int64_t> extent = AsInt(e);
    if (!extent) {
      static const Function repr = Function::GetGlobalRequired("ffi.ReprPrint");
      TVM_FFI_THROW(ValueError) << "found a layout of extent " << repr(e).cast<String>()
                                << ", which a run knows, wanted constants, of which it has a table;"
                                << " ask a layout of the tile that a block works on";
    }
    out.push_back(*extent);
  }
  return out;
}

const std::vector<int64_t>& LayoutNode::Table() const {
  return *table_.Get([&] { return EvaluateOverBox(index, vars, Shape()); });
}

const std::vector<int64_t>& LayoutNode::OutputShape() const {
  return output_shape_.Get([&] {
    std::vector<int64_t> extent(index.size(), 1);
    const std::vector<int64_t>& table = Table();
    for (size_t k = 0; k < table.size(); k += extent.size()) {
      for (size_t c = 0; c < extent.size(); ++c) extent[c] = std::max(extent[c], table[k + c] + 1);
    }
    return extent;
  });
}

std::vector<int64_t> LayoutNode::Addresses() const {
  const std::vector<int64_t>&table = Table(), &extent = OutputShape();
  std::vector<int64_t> out;
  out.reserve(table.size() / index.size());
  for (size_t k = 0; k < table.size(); k += index.size()) {
    int64_t address = 0;
    for (size_t c = 0; c < index.size(); ++c) address = address * extent[c] + table[k + c];
    out.push_back(address);
  }
  return out;
}

Array<Expr> LayoutNode::MapIndex(const Array<Expr>& input) const {
  if (input.size() != vars.size()) {
    TVM_FFI_THROW(ValueError) << "layout takes " << vars.size() << " indices, found "
                              << input.size();
  }
  return index.Map([&](Expr e) { return SubstituteAll(e, vars, input); });
}

const std::vector<int64_t>& FragmentNode::ThreadTable() const {
  return *thread_table_.Get([&] {
    Array<Var> all = vars;
    all.push_back(replica);
    std::vector<int64_t> box = Shape();
    box.push_back(replicate);
    return EvaluateOverBox({thread}, all, box);
  });
}

int64_t FragmentNode::ThreadExtent() const {
  return thread_extent_.Get([&] {
    const std::vector<int64_t>& table = ThreadTable();
    return *std::max_element(table.begin(), table.end()) + 1;
  });
}

const std::vector<int64_t>& FragmentNode::HeldElements() const {
  return held_elements_.Get([&] {
    const int64_t registers = RegisterExtent();
    std::vector<int64_t> held(ThreadExtent() * registers, -1);
    const std::vector<int64_t>&reg = Table(), &threads = ThreadTable();
    for (size_t k = 0; k < threads.size(); ++k) {
      const size_t element = k / replicate;
      held[threads[k] * registers + reg[element]] = static_cast<int64_t>(element);
    }
    return held;
  });
}

int64_t FragmentNode::ContiguousRegisters() const {
  return contiguous_registers_.Get([&] {
    const std::vector<int64_t>&threads = ThreadTable(), &registers = Table();
    const int64_t row = Shape().back();
    auto holds = [&](int64_t width) {
      for (int64_t first = 0; first < static_cast<int64_t>(registers.size()); first += width) {
        if (registers[first] % width) return false;
        for (int64_t lane = 1; lane < width; ++lane) {
          if (registers[first + lane] != registers[first] + lane) return false;
          if (threads[(first + lane) * replicate] != threads[first * replicate]) return false;
        }
      }
      return true;
    };
    int64_t width = 1;
    while (row % (width * 2) == 0 && holds(width * 2)) width *= 2;
    return width;
  });
}

int64_t FragmentNode::RegisterExtent() const { return OutputShape()[0]; }

Expr FragmentNode::MapThread(const Array<Expr>& input, const Expr& replica_value) const {
  Array<Var> from = vars;
  from.push_back(replica);
  Array<Expr> to = input;
  to.push_back(replica_value);
  return SubstituteAll(thread, from, to);
}

namespace {

/*! The layout of a tensor: an extent may be a symbol. */
Layout MakeTensorLayout(const Array<Var>& vars, const Array<Expr>& shape,
                        const Array<Expr>& index) {
  BoxSimplifier box(vars, shape);
  auto n = make_object<LayoutNode>();
  n->vars = vars;
  n->shape = shape;
  n->index = index.Map([&](Expr e) { return box.analyzer.Simplify(e); });
  return Layout(n);
}

}  // namespace

Layout MakeLayout(const Array<Var>& vars, const std::vector<int64_t>& shape,
                  const Array<Expr>& index) {
  return MakeTensorLayout(vars, ToExprs(shape), index);
}

namespace {

bool HasSameNames(const FragmentNode* a, const FragmentNode* b) {
  return a->replica->name == b->replica->name &&
         std::equal(a->vars.begin(), a->vars.end(), b->vars.begin(), b->vars.end(),
                    [](const Var& x, const Var& y) { return x->name == y->name; });
}

/*! The fragments that were made last, by their expressions before these were simplified. */
class RecentFragments {
 public:
  /*! Undefined where none is like `asked`. */
  Fragment Find(const Fragment& asked, uint64_t hash) const {
    const auto [first, last] = made_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      const auto& [like, made] = it->second;
      if (ffi::StructuralEqual()(like, asked) && HasSameNames(like.get(), asked.get())) return made;
    }
    return Fragment();
  }
  void Keep(uint64_t hash, const Fragment& asked, const Fragment& made) {
    // Thread, register and what HeldElements() has, for each holder of an element.
    elements_ += Product(made->Shape()) * made->replicate;
    if (elements_ > kMostElements) {
      made_.clear();
      elements_ = Product(made->Shape()) * made->replicate;
    }
    made_.emplace(hash, std::pair(asked, made));
  }

 private:
  static constexpr int64_t kMostElements = 1 << 19;  // 12 MiB
  std::unordered_multimap<uint64_t, std::pair<Fragment, Fragment>> made_;
  int64_t elements_ = 0;
};

}  // namespace

Fragment MakeFragment(const Array<Var>& vars, const std::vector<int64_t>& shape, const Expr& index,
                      const Expr& thread, const Var& replica, int64_t replicate) {
  static thread_local RecentFragments recent;
  auto n = make_object<FragmentNode>();
  n->vars = vars;
  n->shape = ToExprs(shape);
  n->index = {index};
  n->thread = thread;
  n->replica = replica;
  n->replicate = replicate;
  const Fragment asked(n);
  const uint64_t hash = ffi::StructuralHash()(asked);
  if (Fragment known = recent.Find(asked, hash); known.defined()) return known;
  BoxSimplifier box(vars, n->shape);
  box.analyzer.BindConst(replica, replicate);
  auto made = make_object<FragmentNode>(*n);
  made->index = {box.analyzer.Simplify(index)};
  made->thread = box.analyzer.Simplify(thread);
  recent.Keep(hash, asked, Fragment(made));
  return Fragment(made);
}

Layout MakeLinearLayout(const std::vector<int64_t>& shape) {
  Array<Var> vars;
  Array<Expr> index;
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    index.push_back(vars[d]);
  }
  Layout layout = MakeLayout(vars, shape, index);
  layout->swizzle_bytes = 0;
  return layout;
}

bool IsSameLayout(const Layout& a, const Layout& b) {
  if (a.same_as(b)) return true;
  if (a->Shape() != b->Shape() || a->index.size() != b->index.size()) return false;
  const auto* fa = a.as<FragmentNode>();
  const auto* fb = b.as<FragmentNode>();
  if ((fa == nullptr) != (fb == nullptr)) return false;
  if (fa && (fa->replicate != fb->replicate || !IsSame(fa->ThreadTable(), fb->ThreadTable()))) {
    return false;
  }
  return IsSame(a->Table(), b->Table());
}

bool IsInjective(const Layout& layout) {
  const std::vector<int64_t>& table = layout->Table();
  const size_t coords = layout->index.size();
  std::vector<int64_t> lowest(coords, INT64_MAX), highest(coords, INT64_MIN);
  for (size_t k = 0; k < table.size(); k += coords) {
    for (size_t c = 0; c < coords; ++c) {
      lowest[c] = std::min(lowest[c], table[k + c]);
      highest[c] = std::max(highest[c], table[k + c]);
    }
  }
  // Places as numbers of the box that holds them all.
  std::vector<int64_t> places;
  const size_t elements = table.size() / coords;
  places.reserve(elements);
  size_t largest = 0;
  for (size_t k = 0; k < table.size(); k += coords) {
    int64_t place = 0;
    for (size_t c = 0; c < coords; ++c) {
      place = place * (highest[c] - lowest[c] + 1) + table[k + c] - lowest[c];
    }
    places.push_back(place);
    largest = std::max<size_t>(largest, place);
  }
  // A layout with small gaps has room for a mark at each place; in others, sorting shows two that
  // are equal.
  if (largest < 4 * elements) {
    std::vector<char> taken(largest + 1);
    return NoneOf(places, [&](int64_t place) { return std::exchange(taken[place], 1); });
  }
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end()) == places.end();
}

namespace {

/*! Two elements in one register of a thread; the replicas of one element may meet. */
bool HasSharedRegister(const FragmentNode* f) {
  const std::vector<int64_t>&threads = f->ThreadTable(), &registers = f->Table();
  const int64_t extent = *std::max_element(registers.begin(), registers.end()) + 1;
  std::vector<std::pair<int64_t, int64_t>> places;
  for (size_t k = 0; k < threads.size(); ++k) {
    const int64_t element = static_cast<int64_t>(k) / f->replicate;
    places.push_back({threads[k] * extent + registers[element], element});
  }
  std::sort(places.begin(), places.end());
  for (size_t k = 1; k < places.size(); ++k) {
    if (places[k].first == places[k - 1].first && places[k].second != places[k - 1].second)
      return true;
  }
  return false;
}

}  // namespace

std::string PlacementDefect(const Layout& layout) {
  auto negative = [](const std::vector<int64_t>& t) {
    return *std::min_element(t.begin(), t.end()) < 0;
  };
  if (const auto* f = layout.as<FragmentNode>()) {
    if (negative(f->ThreadTable())) return "a negative thread";
    if (negative(f->Table())) return "a negative register";
    return HasSharedRegister(f) ? "two elements in one register of a thread" : "";
  }
  if (negative(layout->Table())) return "a negative place";
  return IsInjective(layout) ? "" : "two elements in one place";
}

int64_t ContiguousElements(const Layout& layout) {
  const std::vector<int64_t> at = layout->Addresses();
  const int64_t row = layout->Shape().back();
  auto holds = [&](int64_t width) {
    for (int64_t first = 0; first < static_cast<int64_t>(at.size()); first += width) {
      if (at[first] % width) return false;
      for (int64_t lane = 1; lane < width; ++lane) {
        if (at[first + lane] != at[first] + lane) return false;
      }
    }
    return true;
  };
  int64_t width = 1;
  while (row % (width * 2) == 0 && holds(width * 2)) width *= 2;
  return width;
}

Layout ExpandLayout(const Layout& layout, const std::vector<int64_t>& leading) {
  Array<Var> vars;
  Array<Expr> index;
  std::vector<int64_t> shape = leading;
  for (size_t d = 0; d < leading.size(); ++d) {
    vars.push_back(MakeVar("s" + std::to_string(d)));
    index.push_back(vars[d]);
  }
  for (const Var& v : layout->vars) vars.push_back(v);
  for (const Expr& e : layout->index) index.push_back(e);
  for (int64_t e : layout->Shape()) shape.push_back(e);
  Layout expanded = MakeLayout(vars, shape, index);
  expanded->swizzle_bytes = layout->swizzle_bytes;
  expanded->swizzle_bits = layout->swizzle_bits;
  return expanded;
}

Fragment RepeatFragment(const Fragment& base, const std::vector<int64_t>& repeats, bool on_thread,
                        bool first_dim_fastest) {
  const std::vector<int64_t> old_shape = base->Shape();
  Array<Var> vars;
  Array<Expr> inner;
  std::vector<Expr> block;
  std::vector<int64_t> shape;
  for (size_t d = 0; d < old_shape.size(); ++d) {
    Var v = MakeVar(base->vars[d]->name);
    vars.push_back(v);
    inner.push_back(FloorModOf(v, old_shape[d]));
    block.push_back(FloorDivOf(v, old_shape[d]));
    shape.push_back(old_shape[d] * repeats[d]);
  }
  Expr linear = MakeInt(0);
  for (size_t k = 0; k < block.size(); ++k) {
    const size_t d = first_dim_fastest ? block.size() - 1 - k : k;
    linear = linear * repeats[d] + block[d];
  }
  Var replica = MakeVar("rep");
  Expr thread = base->MapThread(inner, replica);
  Expr index = base->MapIndex(inner)[0];
  if (on_thread) {
    thread = thread + linear * base->ThreadExtent();
  } else {
    index = index + linear * base->RegisterExtent();
  }
  return MakeFragment(vars, shape, index, thread, replica, base->replicate);
}

Fragment ReplicateFragment(const Fragment& base, int64_t n) {
  Var replica = MakeVar("rep");
  Array<Expr> same;
  for (const Var& v : base->vars) same.push_back(v);
  Expr thread = base->MapThread(same, FloorModOf(replica, base->replicate)) +
                FloorDivOf(replica, base->replicate) * base->ThreadExtent();
  return MakeFragment(base->vars, base->Shape(), base->index[0], thread, replica,
                      base->replicate * n);
}

namespace {

void RegisterTypes() {
  namespace refl = ffi::reflection;
  refl::ObjectDef<LayoutNode>()
      .def_ro("vars", &LayoutNode::vars, refl::AttachFieldFlag::SEqHashDefPattern())
      .def_ro("shape", &LayoutNode::shape)
      .def_ro("index", &LayoutNode::index)
      .def_ro("swizzle_bytes", &LayoutNode::swizzle_bytes, refl::AttachFieldFlag::SEqHashIgnore())
      .def_ro("swizzle_bits", &LayoutNode::swizzle_bits, refl::AttachFieldFlag::SEqHashIgnore());
  refl::ObjectDef<FragmentNode>()
      .def_ro("replica", &FragmentNode::replica, refl::AttachFieldFlag::SEqHashDefPattern())
      .def_ro("thread", &FragmentNode::thread)
      .def_ro("num_replicas", &FragmentNode::replicate);
  refl::TypeAttrDef<LayoutNode>().def(
      "__ffi_repr__", [](const Object* o, const Function&) -> String {
        return LayoutText(GetRef<Layout>(static_cast<const LayoutNode*>(o)));
      });
  refl::TypeAttrDef<FragmentNode>().def(
      "__ffi_repr__", [](const Object* o, const Function&) -> String {
        return LayoutText(GetRef<Layout>(static_cast<const FragmentNode*>(o)));
      });
}

Registration layout_types_registration(RegisterTypes, RegistrationPhase::kTypes);

Registration layout_registration([] {
  RegisterFunction("Layout", MakeTensorLayout);
  RegisterFunction("Fragment", [](Array<Var> vars, Array<int64_t> shape, Expr index, Expr thread,
                                  Var replica, int64_t replicate) {
    return MakeFragment(vars, {shape.begin(), shape.end()}, index, thread, replica, replicate);
  });
  RegisterFunction("LayoutTable", [](Layout l) {
    auto t = l->Table();
    return Array<int64_t>(t.begin(), t.end());
  });
  RegisterFunction("FragmentThreadTable", [](Fragment f) {
    auto t = f->ThreadTable();
    return Array<int64_t>(t.begin(), t.end());
  });
  RegisterFunction("LayoutOutputShape", [](Layout l) {
    auto t = l->OutputShape();
    return Array<int64_t>(t.begin(), t.end());
  });
  RegisterFunction("LayoutMapIndex", [](Layout l, Array<Expr> indices) {
    Analyzer analyzer;
    return l->MapIndex(indices).Map([&](Expr e) { return analyzer.Simplify(e); });
  });
  RegisterFunction("LayoutIsEqual", IsSameLayout);
  RegisterFunction("LayoutDefect", [](Layout l) -> String { return PlacementDefect(l); });
  RegisterFunction("LayoutContiguousElements", ContiguousElements);
  RegisterFunction("LayoutAddresses", [](Layout l) {
    auto t = l->Addresses();
    return Array<int64_t>(t.begin(), t.end());
  });
  RegisterFunction("FragmentThreadExtent", [](Fragment f) { return f->ThreadExtent(); });
  RegisterFunction("FragmentMapThread", [](Fragment f, Array<Expr> indices, Expr replica) {
    return Analyzer().Simplify(f->MapThread(indices, replica));
  });
});

}  // namespace
}  // namespace tl
