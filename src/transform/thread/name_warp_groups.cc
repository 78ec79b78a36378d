/*!
 * NameWarpGroups: what the threads of a warp agree on in descriptors of wgmma is asked once.
 *
 * In:  a flat thread program.
 * Out: the same; in descriptors (`tl.wgmma_descriptor`) a quotient of the thread's number that is
 *      the same for all threads of a warp is a name, which the kernel gives it at its beginning as
 *      the value of the warp's first thread: `warp_group = tl.shfl_sync(mask, tx // 128, 0, 32)`.
 * Establishes: ptxas sees that a warp agrees on its descriptors and computes them in uniform
 *      registers, where wgmma takes them from, instead of moving each there (CUTLASS asks for
 *      `canonical_warp_group_idx` in the same way). On an H200 that is a quarter of a GEMM's
 *      instructions between products.
 * Refuses nothing. Kernels whose threads have several dimensions stay as they are.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../layout/int_program.h"
#include "../../op/intrinsics.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr int64_t kWarp = 32, kWarpGroup = 4 * kWarp;
constexpr int64_t kAllLanes = 0xffffffff;

/*! An integer expression of one variable: no load, no call. */
bool IsOf(const Expr& e, const Var& variable) {
  struct Finder : StmtExprVisitor {
    const Object* variable;
    bool only = true;
    using StmtExprVisitor::Visit_;
    void Visit_(const VarNode* op) final { only &= op == variable; }
    void Visit_(const TensorLoadNode*) final { only = false; }
    void Visit_(const CallNode*) final { only = false; }
  } finder;
  finder.variable = variable.get();
  finder(e);
  return finder.only;
}

/*! Names the quotients in the descriptors of a kernel. */
class Namer : public StmtExprMutator {
 public:
  Namer(const Var& thread, int64_t threads) : thread_(thread), threads_(threads) {}

  /*! The statements that give the names their values. */
  std::vector<Stmt> Binds() const {
    std::vector<Stmt> binds;
    for (const auto& [value, name] : names_) {
      const Expr first = CallOp(
          "tl.shfl_sync",
          {MakeInt(DLDataType{kDLUInt, 32, 1}, kAllLanes), value, MakeInt(0), MakeInt(kWarp)},
          value->ty);
      binds.push_back(MakeBind(name, first, Span()));
    }
    return binds;
  }

 protected:
  using StmtExprMutator::Mutate_;
  Expr Mutate_(const CallNode* op) final {
    const bool outside = in_descriptor_;
    in_descriptor_ |= IsCallTo(GetRef<Expr>(op), kWgmmaDescriptor);
    const Expr call = Default<Expr>(op);
    in_descriptor_ = outside;
    return call;
  }
  Expr Mutate_(const FloorDivNode* op) final {
    const Expr e = GetRef<Expr>(op);
    return in_descriptor_ && IsOf(e, thread_) && AgreesInWarps(e) ? NameOf(e) : Default<Expr>(op);
  }

 private:
  bool AgreesInWarps(const Expr& e) const {
    const IntProgram value(e, {thread_});
    for (int64_t t = 0; t < threads_; ++t) {
      const int64_t first = t / kWarp * kWarp;
      if (value(&t) != value(&first)) return false;
    }
    return true;
  }

  Expr NameOf(const Expr& e) {
    for (const auto& [value, name] : names_) {
      if (tvm::ffi::StructuralEqual()(value, e)) return name;
    }
    const auto* quotient = e.as<FloorDivNode>();
    const bool is_group = quotient->a.same_as(thread_) && IsConst(quotient->b, kWarpGroup);
    names_.emplace_back(e, MakeVar(is_group ? "warp_group" : "of_warp", e->dtype()));
    return names_.back().second;
  }

  const Var thread_;
  const int64_t threads_;
  bool in_descriptor_ = false;
  std::vector<std::pair<Expr, Var>> names_;
};

/*! Finds the kernels: what stands inside of their axes. */
class Kernels : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != "thread_extent") return Default<Stmt>(op);
    const IterVar axis = op->node.cast<IterVar>();
    const std::string tag = axis->thread_tag;
    const std::optional<int64_t> extent = AsInt(op->value);
    if (tag == "threadIdx.x" && extent) {
      thread_ = axis->var;
      threads_ = *extent;
    } else if (tag.rfind("threadIdx", 0) == 0 && extent != 1) {
      is_flat_ = false;
    }
    auto attr = make_object<AttrStmtNode>(*op);
    const auto* inner = op->body.as<AttrStmtNode>();
    if (inner && inner->attr_key == "thread_extent") {
      attr->body = Mutate(op->body);
    } else {
      attr->body = Named(op->body);
    }
    return AttrStmt(attr);
  }

 private:
  Stmt Named(const Stmt& body) {
    const bool is_flat = is_flat_ && thread_.defined();
    is_flat_ = true;
    if (!is_flat) return body;
    Namer namer(thread_, threads_);
    const Stmt named = namer.Mutate(body);
    std::vector<Stmt> stmts = namer.Binds();
    if (stmts.empty()) return body;
    stmts.push_back(named);
    return MakeSeq(stmts);
  }

  Var thread_;
  int64_t threads_ = 0;
  bool is_flat_ = true;
};

PrimFunc NameWarpGroups(PrimFunc f) { return WithBody(f, Kernels().Mutate(f->body)); }

Registration registration([] { RegisterPass("NameWarpGroups", NameWarpGroups); });

}  // namespace
}  // namespace tl
