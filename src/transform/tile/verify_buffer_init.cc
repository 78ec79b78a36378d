/*!
 * VerifyBufferInit: warns of buffers that are read before anything was written to them.
 *
 * In:  a tile program as traced.   Out: the same program.
 * A buffer of the block or of a thread is warned about once, at its first read, if no statement in
 * front of it in the program writes to it. A conditional read in a loop may come after the loop's
 * own writes, so these count for it. What a range of threads writes to registers, others do not
 * have. Shared memory that other roles write, at any place of the program, counts as written: roles
 * run at the same time, and the program's barriers order them. Views count as what they are views
 * of.
 * Establishes nothing, and refuses nothing. `tl.disable_buffer_init_check` turns the pass off.
 */
#include <unordered_map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/thread_range.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

bool IsFilledByProgram(const Var& buffer) {
  return IsLocal(buffer) || IsFragment(buffer) || ScopeOf(buffer) == "shared" ||
         ScopeOf(buffer) == "shared.dyn";
}

std::unordered_set<const Object*> WrittenIn(const Stmt& s) {
  std::unordered_set<const Object*> written;
  for (const Var& v : CollectBufferUse(s).writes) written.insert(v.get());
  return written;
}

class InitVerifier : public StmtExprVisitor {
 public:
  explicit InitVerifier(const Stmt& program) {
    ForEachIn<DeclBufferNode>(program, [&](const DeclBufferNode* op) {
      const auto* call = op->data.as<CallNode>();
      const bool view = call && IsCallTo(op->data, "tirx.buffer_data");
      if (view) view_of_[op->buffer.get()] = Base(call->args[0].as_or_throw<Var>().get());
    });
    ForEachIn<AttrStmtNode>(program, [&](const AttrStmtNode* op) {
      const std::optional<WarpSet> warps = WarpSet::Of(op);
      if (!warps || !IsApart(op)) return;
      for (const Object* buffer : WrittenIn(op->body)) {
        roles_[Base(buffer)].push_back(*warps);
      }
    });
  }

 protected:
  /*! A view's address is no access. */
  void Visit_(const DeclBufferNode*) final {}
  void Visit_(const AttrStmtNode* op) final {
    const WarpSet outside = here_;
    here_ = WarpSet::Of(op).value_or(outside);
    Default(op);
    here_ = outside;
  }
  void Visit_(const ForNode* op) final { VisitLoop(op, GetRef<Stmt>(op)); }
  void Visit_(const WhileNode* op) final { VisitLoop(op, GetRef<Stmt>(op)); }
  void Visit_(const IfThenElseNode* op) final {
    Visit(op->condition);
    ++conditions_;
    Visit(op->then_case);
    if (op->else_case) Visit(*op->else_case);
    --conditions_;
  }

  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    const std::unique_ptr<TileOperator> tile_op = OperatorOf(GetRef<Stmt>(op));
    if (!tile_op) return Default(op);
    const BufferUse use = tile_op->Use();
    for (const Var& v : use.reads) {
      const int condition = tile_op->MayRead(v) ? 1 : 0;
      conditions_ += condition;
      Read(v);
      conditions_ -= condition;
    }
    for (const Var& v : use.writes) Write(v.get());
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
    Write(op->buffer.get());
  }
  void Visit_(const TensorLoadNode* op) final {
    for (const Expr& i : op->indices) Visit(i);
    Read(op->source.as_or_throw<Var>());
  }
  void Visit_(const CallNode* op) final {
    if (IsIfThenElse(op)) {
      Visit(op->args[0]);
      ++conditions_;
      Visit(op->args[1]);
      Visit(op->args[2]);
      --conditions_;
      return;
    }
    if (IsCallTo(op, kWarpgroupFence)) return;
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (Reads(p.access) && p.access != Access::kAtomic && !IsOverwritten(op, p)) Read(p.buffer);
    }
    for (const Object* buffer : WrittenBuffers(MakeEvaluate(GetRef<Expr>(op), span_))) {
      Write(buffer);
    }
    for (const Expr& arg : op->args) {
      if (!AsAddressOf(arg)) Visit(arg);
    }
  }

 private:
  /*! The accumulator of an MMA by hand, unless it is surely added to. */
  static bool IsOverwritten(const CallNode* op, const PointerAccess& p) {
    if (!IsWgmma(op) || p.access != Access::kReadWrite) return false;
    const Intrinsic* row = FindIntrinsic(op);
    return !IsConst(op->args[row->template_args + row->access.size() - 1], 1);
  }

  template <typename Loop>
  void VisitLoop(const Loop* op, const Stmt& s) {
    const auto outside = written_later_;
    // A loop further out was entered under no more conditions.
    for (const Object* buffer : WrittenIn(s)) written_later_.try_emplace(Base(buffer), conditions_);
    Default(op);
    written_later_ = outside;
  }

  /*! Whether other roles than those here write to shared memory. */
  bool IsWrittenBeside(const Var& buffer, const Object* base) const {
    auto roles = roles_.find(base);
    return roles != roles_.end() && IsShared(buffer) &&
           AnyOf(roles->second, [&](const WarpSet& warps) { return warps.IsDisjoint(here_); });
  }

  const Object* Base(const Object* buffer) const {
    auto it = view_of_.find(buffer);
    return it == view_of_.end() ? buffer : it->second;
  }
  void Write(const Object* buffer) {
    const Object* base = Base(buffer);
    // What threads of a range write to shared memory, all can read.
    const bool shared = IsShared(GetRef<Var>(static_cast<const VarNode*>(base)));
    const WarpSet writers = shared ? WarpSet::All() : here_;
    auto [it, is_new] = written_.try_emplace(base, writers);
    if (!is_new) it->second = it->second.Union(writers);
  }
  void Read(const Var& buffer) {
    const Object* base = Base(buffer.get());
    if (!IsFilledByProgram(buffer)) return;
    auto writers = written_.find(base);
    if (writers != written_.end() && writers->second.Contains(here_)) return;
    if (IsWrittenBeside(buffer, base)) return;
    auto later = written_later_.find(base);
    if (later != written_later_.end() && conditions_ > later->second) return;
    LogAt(LogLevel::kWarning, span_,
          "found a read of " + std::string(buffer->name) +
              " before anything is written to it; fill it first, for example with T.clear");
    written_.insert_or_assign(base, WarpSet::All());
  }

  std::unordered_map<const Object*, const Object*> view_of_;
  /*! The threads that have written a buffer, or the buffer for them. */
  std::unordered_map<const Object*, WarpSet> written_;
  WarpSet here_ = WarpSet::All();
  /*! The roles that write a buffer. */
  std::unordered_map<const Object*, std::vector<WarpSet>> roles_;
  /*! By the loops around, each buffer with the number of conditions around the loop. */
  std::unordered_map<const Object*, int> written_later_;
  int conditions_ = 0;
  Span span_;
};

PrimFunc VerifyBufferInit(PrimFunc f) {
  if (!PassConfigFlag("tl.disable_buffer_init_check", false)) InitVerifier(f->body)(f->body);
  return f;
}

TL_REGISTER_PASS(VerifyBufferInit);

}  // namespace
}  // namespace tl
