#include "kernel_scope.h"

#include "../../tvm/error.h"

namespace tl {

void KernelScope::NoteAxis(const AttrStmtNode* op) {
  if (op->attr_key != "thread_extent") return;
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

void KernelScope::BindTo(Analyzer* analyzer) const {
  for (const Axis& a : axes_) analyzer->Bind(a.var, MakeInt(a.var->dtype(), 0), a.extent);
}

}  // namespace tl
