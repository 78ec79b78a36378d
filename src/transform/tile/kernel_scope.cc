#include "kernel_scope.h"

#include <unordered_map>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/conjuncts.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"

namespace tl {
namespace {

class AssumptionReader {
 public:
  std::vector<Expr> found;

  /*! Whether what follows is still in front of all that the kernel does. */
  bool Read(const Stmt& s) {
    if (const auto* op = s.as<AttrStmtNode>()) {
      if (op->attr_key == kThreadExtent) inside_.push_back(op->node.cast<IterVar>()->var);
      return Read(op->body);
    }
    if (const auto* op = s.as<SBlockRealizeNode>()) return Read(op->block);
    if (const auto* op = s.as<SBlockNode>()) return Read(op->body);
    if (const auto* op = s.as<SeqStmtNode>()) {
      return AllOf(op->seq, [&](const Stmt& t) { return Read(t); });
    }
    if (s.as<DeclBufferNode>() || s.as<AllocBufferNode>()) return true;
    if (const auto* op = s.as<BindNode>()) {
      inside_.push_back(op->var);
      return true;
    }
    if (const Stmt role = RoleOf(s); role.defined()) {
      // Both roles begin with what stood in front of the kernel's statements.
      Read(role);
      return true;
    }
    // Counts of a role's fills.
    if (const auto* op = s.as<BufferStoreNode>()) return IsLocal(op->buffer);
    const Expr condition = AssumptionOf(s);
    if (!condition.defined()) return false;
    const bool of_parameters = IsArithmetic(condition) &&
                               NoneOf(inside_, [&](const Var& v) { return Uses(condition, v); });
    if (of_parameters) found.push_back(condition);
    return true;
  }

 private:
  /*! What warp specialisation lets a range of threads run. */
  static Stmt RoleOf(const Stmt& s) {
    const auto* branch = s.as<IfThenElseNode>();
    const auto* range = branch ? branch->then_case.as<AttrStmtNode>() : nullptr;
    if (!range || range->attr_key != kThreadRange) return Stmt();
    const auto* role = range->body.as<AttrStmtNode>();
    return role && role->attr_key == kWarpRole ? role->body : Stmt();
  }

  std::vector<Var> inside_;  // of the kernel
};

/*! What is known of the variables that a kernel binds. */
class BindingReader : public StmtExprVisitor {
 public:
  /*! What is known of variables that one place binds: copies of a loop's body may share a variable,
   * which has another value in each. */
  std::vector<Expr> Facts() const {
    std::vector<Expr> facts;
    for (const Expr& fact : found_) {
      const std::vector<Var> vars = VarsOf(fact);
      const bool is_bound_again = AnyOf(vars, [&](const Var& v) {
        const auto place = places_.find(v.get());
        return place != places_.end() && place->second > 1;
      });
      if (!is_bound_again) facts.push_back(fact);
    }
    return facts;
  }

 protected:
  // Nothing is bound in an expression.
  void Visit_(const EvaluateNode*) override {}
  void Visit_(const BufferStoreNode*) override {}

  void Visit_(const BindNode* op) override {
    ++places_[op->var.get()];
    const DLDataType t = op->value->dtype();
    if (t.code != kDLInt || t.lanes != 1) return;
    const Analyzer::Modular m = analyzer_.ModularSet(op->value);
    // Arithmetic wraps, which only keeps multiples of powers of two.
    const int64_t unit = m.coeff & -m.coeff;
    if (unit < 2) return;
    found_.push_back(EqualOf(FloorModOf(op->var, unit), MakeInt(t, m.base % unit)));
  }

  void Visit_(const SeqStmtNode* op) override {
    std::vector<Var> bound;
    for (const Stmt& s : op->seq) {
      if (const auto* bind = s.as<BindNode>()) bound.push_back(bind->var);
      if (const Expr fact = AssumptionOf(s); fact.defined()) Note(fact, bound);
      Visit(s);
    }
  }

 private:
  /*! What a fact says of `bound` alone counts: the kernel may come to its other parts nowhere. */
  void Note(const Expr& fact, const std::vector<Var>& bound) {
    for (const Expr& part : ConjunctsOf(fact)) {
      const auto is_used = [&](const Var& v) { return Uses(part, v); };
      if (IsArithmetic(part) && AnyOf(bound, is_used)) found_.push_back(part);
    }
  }

  Analyzer analyzer_;
  std::vector<Expr> found_;
  std::unordered_map<const Object*, int> places_;
};

}  // namespace

std::vector<Expr> FactsWithin(const Stmt& kernel) {
  std::vector<Expr> found = LeadingAssumptions(kernel);
  BindingReader reader;
  reader(kernel);
  const std::vector<Expr> bound = reader.Facts();
  AppendRange(&found, bound);
  return found;
}

std::vector<Expr> LeadingAssumptions(const Stmt& kernel) {
  AssumptionReader reader;
  reader.Read(kernel);
  return std::move(reader.found);
}

void KernelScope::NoteAxis(const AttrStmtNode* op) {
  if (op->attr_key != kThreadExtent) return;
  auto iter = op->node.cast<IterVar>();
  const std::string tag = iter->thread_tag;
  // A second kernel of the function names its axes anew.
  for (Axis& a : axes_) {
    if (a.tag != tag) continue;
    a = {tag, iter->var, op->value};
    return;
  }
  axes_.push_back({tag, iter->var, op->value});
}

const KernelScope::Axis* KernelScope::Find(const std::string& tag) const {
  for (const Axis& a : axes_) {
    if (a.tag == tag) return &a;
  }
  return nullptr;
}

ThreadRange KernelScope::Threads(const Span& span) const {
  if (ranges_.size() == 1) return ranges_[0];
  if (!ranges_.empty()) {
    std::string found;
    for (const ThreadRange& r : ranges_) {
      found += (found.empty() ? "" : " and ") + std::to_string(r.first) + " to " +
               std::to_string(r.first + r.threads - 1);
    }
    ThrowAt(span, "ValueError",
            "found a tile operator or T.Parallel that threads " + found +
                " run, wanted consecutive threads; give each of the ranges a T.ws of its own");
  }
  int64_t n = 1;
  for (const char* tag : {"threadIdx.x", "threadIdx.y", "threadIdx.z"}) {
    if (const Axis* a = Find(tag)) n *= ToInt(a->extent);
  }
  return {0, n};
}

Expr KernelScope::ThreadIndex() const {
  Expr index = MakeInt(0);
  for (const char* tag : {"threadIdx.z", "threadIdx.y", "threadIdx.x"}) {
    const Axis* a = Find(tag);
    if (a && !IsConst(a->extent, 1)) index = index * ToInt(a->extent) + a->var;
  }
  return index;
}

std::vector<std::pair<Var, Expr>> KernelScope::ThreadAxes() const {
  std::vector<std::pair<Var, Expr>> axes;
  for (const char* tag : {"threadIdx.z", "threadIdx.y", "threadIdx.x"}) {
    if (const Axis* a = Find(tag)) axes.emplace_back(a->var, a->extent);
  }
  return axes;
}

void KernelScope::BindTo(Analyzer* analyzer) const {
  for (const Axis& a : axes_) analyzer->Bind(a.var, MakeInt(a.var->dtype(), 0), a.extent);
}

}  // namespace tl
