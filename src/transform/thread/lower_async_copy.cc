/*!
 * LowerAsyncCopy: stores under an `async_copy` attribute become cp.async where the hardware has one
 * for them.
 *
 * In:  a thread program after VectorizeLoop, so that each access is as wide as it can legally be.
 * Out: no `async_copy` attribute. Under one, a store to shared memory becomes the target's
 *      asynchronous copy if that has as many bytes (Target::ThreadCopy; 4, 8 or 16 of cp.async),
 *      and if the value was loaded from global memory with the same dtype. If the value is zero
 *      where a condition is false, the copy has the condition. Under the attribute of an
 *      instruction that takes lanes in their order, a store is that instruction where a copy has
 *      planned it ("demanded" and "proved"). Every other store stays a plain store: it is correct
 *      under any commit and wait. Commits and waits are those of the target's queue; a kernel
 *      without asynchronous copies has none.
 *      The attribute's condition becomes the condition of the copies if all are cp.async, else an
 *      `if` around them: no branch then keeps the instruction scheduler from mixing copies with
 *      arithmetic. Where it is false, nothing is left.
 * Establishes: no store is asynchronous but by an instruction that names its queue.
 * Refuses (ValueError): under an attribute whose node is "demanded", because the program asks for
 * cp.async, a store that cannot be one; the error names what is missing. Under "proved" it is a
 * bug, because SelectInstructions has shown that the store can be one.
 */
#include <algorithm>

#include "../../analysis/predicated_load.h"
#include "../../op/copy_instruction.h"
#include "../../op/intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

/*! Indices of the first of the contiguous elements; nullopt for lanes that are not contiguous. */
std::optional<Array<Expr>> FirstLane(const Array<Expr>& indices) {
  Array<Expr> first = indices;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i]->dtype().lanes == 1) continue;
    const auto* ramp = indices[i].as<RampNode>();
    if (!ramp || i + 1 != indices.size() || !IsConst(ramp->stride, 1)) return std::nullopt;
    first.Set(i, ramp->base);
  }
  return first;
}

/*! Who says that the stores under an attribute are cp.async. */
enum class Says : uint8_t { kNobody, kCompiler, kProgram };

Says WhoSays(const AttrStmtNode* attr) {
  const auto text = attr->node.try_cast<String>();
  if (!text) return Says::kNobody;
  return *text == kDemanded ? Says::kProgram : *text == kProved ? Says::kCompiler : Says::kNobody;
}

[[noreturn]] void RefuseDemand(const Span& span, const std::string& found) {
  ThrowAt(
      span, "ValueError",
      "a copy that must be cp.async: found " + found +
          ", wanted 4, 8 or 16 aligned bytes of one dtype from global to shared memory on sm_80 "
          "or later; use T.copy without prefer_instruction");
}

void RequirePlain(Says says, const Span& span, const std::string& found) {
  if (says == Says::kProgram) RefuseDemand(span, found);
  if (says == Says::kCompiler)
    ThrowBug(span, "LowerAsyncCopy", "a cp.async that is proved: found " + found);
}

/*! Lowers what stands under one attribute. */
class ScopeLowerer : public StmtExprMutator {
 public:
  ScopeLowerer(const CopyInstruction& row, const Expr& guard, Says says = Says::kNobody)
      : row_(row), guard_(guard), says_(says) {}
  /*! Something stayed that must not run where the guard is false. */
  bool left_plain = false;

 protected:
  Stmt Mutate_(const BindNode* op) override {
    left_plain = true;
    return GetRef<Stmt>(op);
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    Stmt copy = AsyncCopyOf(op);
    left_plain = left_plain || copy.same_as(GetRef<Stmt>(op));
    return copy;
  }

  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key != kAsyncCopy) return Default<Stmt>(op);
    const Says outside = says_;
    says_ = std::max(says_, WhoSays(op));
    Stmt body = Mutate(op->body);
    says_ = outside;
    return body;
  }

 private:
  Stmt AsyncCopyOf(const BufferStoreNode* op) const {
    if (row_.in_lane_order && says_ == Says::kNobody) return GetRef<Stmt>(op);
    const std::optional<PredicatedLoad> source = AsPredicatedLoad(op->value);
    if (!source) return Plain(op, "a value that is computed or cast to another dtype");
    if (!IsShared(op->buffer)) return Plain(op, "a destination outside of shared memory");
    const TensorLoadNode* load = source->load;
    const Var global = load->source.as_or_throw<Var>();
    const DLDataType type = DTypeOf(op->buffer);
    const int bits = load->dtype().bits * load->dtype().lanes;
    const bool is_wide =
        std::find(row_.bytes.begin(), row_.bytes.end(), bits / 8) != row_.bytes.end();
    const auto to = FirstLane(op->indices), from = FirstLane(load->indices);
    if (DTypeOf(global) != type) return Plain(op, "two dtypes");
    if (!to || !from || bits % 8 || !is_wide) {
      return Plain(op, std::to_string(bits) +
                           " bits at a time, all that alignment, extents and bounds prove");
    }
    Array<Expr> args = {MakeInt(bits / 8), AddressOf(op->buffer, *to), AddressOf(global, *from)};
    Expr condition = guard_;
    if (source->condition.defined()) {
      condition = condition.defined() ? condition && source->condition : source->condition;
    }
    if (condition.defined()) args.push_back(condition);
    return MakeEvaluate(CallOp(condition.defined() ? row_.conditional : row_.intrinsic, args),
                        op->span);
  }

  Stmt Plain(const BufferStoreNode* op, const std::string& found) const {
    RequirePlain(says_, op->span, found);
    return GetRef<Stmt>(op);
  }

  const CopyInstruction& row_;
  Expr guard_;
  Says says_;
};

bool HasAsyncCopy(const Stmt& s) {
  return HasNode<CallNode>(s, [](const CallNode* op) {
    const std::vector<PointerAccess> accesses = PointerAccesses(op);
    return AnyOf(accesses, [](const PointerAccess& p) { return p.access == Access::kAsyncWrite; });
  });
}

/*! Makes commits and waits those of the target's queue; drops them without one. */
class GroupLowerer : public StmtExprMutator {
 public:
  explicit GroupLowerer(const AsyncQueueRow* queue) : queue_(queue) {}

 protected:
  Stmt Mutate_(const SeqStmtNode* op) override {
    std::vector<Stmt> kept;
    for (const Stmt& s : op->seq) {
      if (queue_ || !GroupCall(s)) kept.push_back(Mutate(s));
    }
    return MakeSeq(kept);
  }
  Stmt Mutate_(const EvaluateNode* op) override {
    const CallNode* call = GroupCall(GetRef<Stmt>(op));
    if (!call) return GetRef<Stmt>(op);
    if (!queue_) return MakeSeq({});
    const bool waits = IsCallTo(op->value, kCpAsyncWait);
    return MakeEvaluate(CallOp(waits ? queue_->wait : queue_->commit, call->args), op->span);
  }

 private:
  static const CallNode* GroupCall(const Stmt& s) {
    const auto* op = s.as<EvaluateNode>();
    const bool is_one =
        op && (IsCallTo(op->value, kCpAsyncCommit) || IsCallTo(op->value, kCpAsyncWait));
    return is_one ? op->value.as<CallNode>() : nullptr;
  }

  const AsyncQueueRow* queue_;
};

class AsyncCopyLowerer : public StmtExprMutator {
 public:
  explicit AsyncCopyLowerer(const Target& target) : target_(target) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key != kAsyncCopy) return Default<Stmt>(op);
    if (IsConst(op->value, 0)) return MakeSeq({});  // behind the end of a loop of one iteration
    const bool always = AsInt(op->value).has_value();
    const Expr guard = always ? Expr() : op->value;
    if (const CopyInstruction* row = target_.ThreadCopy()) {
      ScopeLowerer lower(*row, guard, WhoSays(op));
      Stmt body = lower.Mutate(op->body);
      if (always || !lower.left_plain) return body;
      return MakeIf(guard, ScopeLowerer(*row, Expr()).Mutate(op->body), op->span);
    }
    RequirePlain(WhoSays(op), op->body->span, "target " + target_.arch);
    return always ? Mutate(op->body) : MakeIf(guard, Mutate(op->body), op->span);
  }

 private:
  const Target& target_;
};

PrimFunc LowerAsyncCopy(PrimFunc f) {
  return ForEachKernel(f, [&target = TargetOf(f)](const AttrStmtNode* op) {
    const Stmt kernel = AsyncCopyLowerer(target).Mutate(GetRef<Stmt>(op));
    const bool waits = HasAsyncCopy(kernel);
    return GroupLowerer(waits ? target.RowOf(AsyncQueue::kCpAsync) : nullptr).Mutate(kernel);
  });
}

TL_REGISTER_PASS(LowerAsyncCopy);

}  // namespace
}  // namespace tl
