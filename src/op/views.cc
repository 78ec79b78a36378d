#include "views.h"

#include <algorithm>
#include <unordered_set>

#include "../layout/annotation.h"
#include "../layout/swizzle.h"
#include "../tvm/analyzer.h"
#include "../tvm/attrs.h"
#include "../tvm/find.h"

namespace tl {
namespace {

class DeclCollector : public StmtExprVisitor {
 public:
  std::vector<std::pair<Var, Var>> found;
  /*! Names of tensors that may be one memory. Those of a group are a tensor and its peers. */
  std::unordered_set<std::string> aliased;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    const bool of_group = op->node.try_cast<String>().has_value();
    if (op->attr_key == kAliased && !of_group) aliased.insert(ToString(op->value));
    Default(op);
  }
  void Visit_(const DeclBufferNode* op) final {
    if (Var buffer = ViewedBy(op); buffer.defined()) found.emplace_back(op->buffer, buffer);
  }
};

void AddRoots(const Views& views, const std::vector<Var>& from, std::vector<Var>* to) {
  for (const Var& v : from) {
    const Var root = views.RootOf(v);
    const bool known = AnyOf(*to, [&](const Var& u) { return u.same_as(root); });
    if (!known) to->push_back(root);
  }
}

int64_t BitsOf(const Var& buffer) {
  const DLDataType t = DTypeOf(buffer);
  return int64_t(t.bits) * t.lanes;
}

Expr RowMajor(const std::vector<int64_t>& shape, const Array<Expr>& coords) {
  Expr flat = MakeInt(0);
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + coords[d];
  return flat;
}

/*! The coordinates of an element by its row-major number. */
Array<Expr> Coordinates(const std::vector<int64_t>& shape, const Expr& flat, Analyzer* analyzer) {
  std::vector<Expr> out(shape.size(), Expr());
  Expr rest = flat;
  for (size_t d = shape.size(); d-- > 0;) {
    out[d] = analyzer->Simplify(d ? FloorModOf(rest, shape[d]) : rest);
    rest = FloorDivOf(rest, shape[d]);
  }
  return Array<Expr>(out.begin(), out.end());
}

/*! Groups of `ratio` neighbours in row-major order share a thread and lie contiguous and aligned.
 */
bool GroupsStayTogether(const Layout& layout, int64_t ratio) {
  const std::vector<int64_t>&shape = layout->OutputShape(), &table = layout->Table();
  std::vector<int64_t> place;
  for (size_t k = 0; k < table.size(); k += shape.size()) {
    int64_t flat = 0;
    for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + table[k + d];
    place.push_back(flat);
  }
  for (size_t k = 0; k < place.size(); ++k) {
    const size_t first = k - k % static_cast<size_t>(ratio);
    if (place[first] % ratio || place[k] != place[first] + static_cast<int64_t>(k - first)) {
      return false;
    }
  }
  const auto* fragment = layout.as<FragmentNode>();
  if (!fragment) return true;
  const std::vector<int64_t>& threads = fragment->ThreadTable();
  for (size_t k = 0; k < threads.size(); ++k) {
    const size_t copies = static_cast<size_t>(fragment->replicate);
    const size_t element = k / copies;
    const size_t first = element - element % static_cast<size_t>(ratio);
    if (threads[k] != threads[first * copies + k % copies]) return false;
  }
  return true;
}

std::vector<Stmt> UsedIn(const SBlock& block, const std::vector<Stmt>& declarations) {
  std::unordered_set<const Object*> named;
  ForEachIn<VarNode>(block, [&](const VarNode* v) { named.insert(v); });
  for (const Var& buffer : AnnotatedBuffers(block->annotations)) named.insert(buffer.get());
  std::unordered_map<const Object*, Var> behind_unnamed;
  std::vector<Stmt> used;
  for (const Stmt& s : declarations) {
    const auto* decl = s.as<DeclBufferNode>();
    Var buffer = ViewedBy(decl);
    const auto it = behind_unnamed.find(buffer.get());
    if (it != behind_unnamed.end()) buffer = it->second;
    if (named.count(decl->buffer.get())) {
      used.push_back(
          buffer.same_as(ViewedBy(decl)) ? s : Stmt(DeclareView(decl->buffer, buffer, decl->span)));
    } else {
      behind_unnamed[decl->buffer.get()] = buffer;
    }
  }
  return used;
}

}  // namespace

Var ViewedBy(const DeclBufferNode* decl) {
  if (!IsCallTo(decl->data, "tirx.buffer_data")) return Var();
  return decl->data.as<CallNode>()->args[0].as_or_throw<Var>();
}

DeclBuffer DeclareView(const Var& view, const Var& buffer, const Span& span) {
  auto pointer = make_object<PointerTypeNode>();
  pointer->element_type = BufferOf(buffer)->dtype;
  pointer->storage_scope = ScopeOf(buffer);
  auto decl = make_object<DeclBufferNode>();
  decl->buffer = view;
  decl->data = Expr(CallOp("tirx.buffer_data", {buffer}, PointerType(pointer)));
  decl->span = span;
  return DeclBuffer(decl);
}

Stmt ViewDeclarer::Mutate_(const SBlockNode* op) {
  std::vector<Stmt> declared;
  std::swap(declared, declared_);
  const Stmt body = Mutate(op->body);
  std::swap(declared, declared_);
  if (declared.empty() && body.same_as(op->body)) return GetRef<Stmt>(op);
  auto block = make_object<SBlockNode>(*op);
  block->body = body;
  std::vector<Stmt> stmts = UsedIn(SBlock(block), declared);
  stmts.push_back(body);
  return With(op, &SBlockNode::body, MakeSeq(stmts));
}

Views::Views(const Stmt& s) {
  DeclCollector c;
  c(s);
  for (const auto& [view, buffer] : c.found) {
    root_.emplace(view.get(), RootOf(buffer));
    all.push_back(view);
  }
  if (c.aliased.empty()) return;
  ForEachIn<VarNode>(s, [&](const VarNode* op) {
    const Var v = GetRef<Var>(op);
    const bool is_tensor = AsBuffer(v) && IsGlobal(v) && !IsView(v);
    if (is_tensor && c.aliased.count(v->name) && !Contains(aliased_, v)) aliased_.push_back(v);
  });
}

Var Views::RootOf(const Var& buffer) const {
  auto it = root_.find(buffer.get());
  return it == root_.end() ? buffer : it->second;
}

BufferUse Views::UseOf(const Stmt& s) const {
  const BufferUse named = CollectBufferUse(s);
  BufferUse use;
  AddRoots(*this, named.reads, &use.reads);
  AddRoots(*this, named.writes, &use.writes);
  const std::vector<Var> written = use.writes;
  for (const Var& v : written) AddRoots(*this, OthersOf(v), &use.writes);
  return use;
}

bool Views::MayShareMemory(const Var& a, const Var& b) const {
  const Var of_a = RootOf(a), of_b = RootOf(b);
  return of_a.same_as(of_b) || Contains(OthersOf(of_a), of_b);
}

std::vector<Var> Views::OthersOf(const Var& buffer) const {
  if (!Contains(aliased_, buffer)) return {};
  std::vector<Var> others;
  std::copy_if(aliased_.begin(), aliased_.end(), std::back_inserter(others),
               [&](const Var& v) { return !v.same_as(buffer); });
  return others;
}

std::optional<Layout> CarryLayout(const Layout& layout, const Var& from, const Var& to) {
  const int64_t wide = BitsOf(to), narrow = BitsOf(from);
  if (from.same_as(to)) return WithSwizzle(layout, static_cast<int>(wide));
  if (wide > narrow && !GroupsStayTogether(layout, wide / narrow)) return std::nullopt;
  Analyzer analyzer;
  const std::vector<int64_t> shape = ConstShape(to);
  Array<Var> vars;
  Array<Expr> coords;
  for (size_t d = 0; d < shape.size(); ++d) {
    vars.push_back(MakeVar("i" + std::to_string(d)));
    coords.push_back(vars[d]);
    analyzer.BindConst(vars[d], shape[d]);
  }
  const Expr flat = RowMajor(shape, coords);
  const Expr source = wide >= narrow ? flat * (wide / narrow) : FloorDivOf(flat, narrow / wide);
  const Array<Expr> input = Coordinates(ConstShape(from), source, &analyzer);
  Array<Expr> index = layout->MapIndex(input);
  if (DTypeOf(from) != DTypeOf(to)) {
    Expr place = RowMajor(layout->OutputShape(), index);
    place = wide >= narrow ? FloorDivOf(place, wide / narrow)
                           : place * (narrow / wide) + FloorModOf(flat, narrow / wide);
    index = {place};
  }
  index = index.Map([&](Expr e) { return analyzer.Simplify(e); });
  const auto* fragment = layout.as<FragmentNode>();
  if (!fragment) return WithSwizzle(MakeLayout(vars, shape, index), static_cast<int>(wide));
  const Expr thread = analyzer.Simplify(fragment->MapThread(input, fragment->replica));
  return MakeFragment(vars, shape, index[0], thread, fragment->replica, fragment->replicate);
}

}  // namespace tl
