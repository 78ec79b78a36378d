#include "kernel_facts.h"

#include "../op/intrinsics.h"
#include "../op/views.h"
#include "../tvm/attrs.h"
#include "effects.h"
#include "shared_memory.h"

namespace tl {
namespace {

std::string TextOf(const Expr& e) {
  const auto* text = e.as<StringImmNode>();
  return text ? std::string(text->value) : "?";
}

}  // namespace

bool KernelFacts::IsFact(const std::string& key) {
  return key == kSwizzle || key == kPrelude || key == kMinBlocks || key == kBoundThreads ||
         key == kAliased || key == kClusterDims || key == kL2HitRatio;
}

void KernelFacts::Visit_(const VarNode* op) { used.insert(op); }

void KernelFacts::Visit_(const AttrStmtNode* op) {
  if (op->attr_key == kThreadExtent) {
    threads.push_back(op->node.cast<IterVar>());
  } else if (op->attr_key == kSwizzle) {
    swizzle = TextOf(op->value);
    swizzle_span = op->span;
  } else if (op->attr_key == kPrelude) {
    prelude = TextOf(op->value);
  } else if (op->attr_key == kMinBlocks) {
    min_blocks = ToInt(op->value);
  } else if (op->attr_key == kBoundThreads) {
    bound_threads = ToInt(op->value);
  } else if (op->attr_key == kAliased) {
    aliased.insert(TextOf(op->value));
  }
  Visit(op->body);
}

void KernelFacts::Visit_(const AllocBufferNode* op) {
  const std::string scope = ScopeOf(op->buffer);
  has_dynamic_shared |= IsInDynamicArray(op->buffer);
  if (scope != "shared") return;
  static_shared[op->buffer.get()] = PlaceStatic(SharedBytes(op), &static_shared_bytes);
}

void KernelFacts::Visit_(const DeclBufferNode* op) {
  if (const Var buffer = ViewedBy(op); buffer.defined()) {
    used.insert(buffer.get());
    // A pointer to another type says nothing of what is written through it.
    written.insert(buffer.get());
    read.insert(buffer.get());
  }
}

void KernelFacts::Visit_(const BufferStoreNode* op) {
  written.insert(op->buffer.get());
  Default(op);
}

void KernelFacts::Visit_(const TensorLoadNode* op) {
  read.insert(op->source.get());
  Default(op);
}

void KernelFacts::Visit_(const CallNode* op) {
  // Nothing is known of a pointer that leaves this program.
  if (const TensorLoadNode* target = AsAddressOf(GetRef<Expr>(op))) {
    written.insert(target->source.get());
  }
  if (!FindIntrinsic(op)) return Default(op);
  const Expr call = GetRef<Expr>(op);
  loads_to_lds |= IsCallTo(call, kBufferLoadLds) || IsCallTo(call, kBufferLoadLdsIf);
  sets_registers |= IsCallTo(call, kRegAlloc) || IsCallTo(call, kRegDealloc);
  awaits_mbarriers |= IsCallTo(call, kMbarrierWait) || IsCallTo(call, kMbarrierWaitCluster);
  for (const PointerAccess& access : PointerAccesses(op)) {
    used.insert(access.buffer.get());
    if (Writes(access.access)) written.insert(access.buffer.get());
    for (const Expr& index : access.indices) Visit(index);
  }
  for (const Expr& arg : op->args) {
    if (!AsAddressOf(arg)) Visit(arg);
  }
}

std::unordered_set<const Object*> BuffersThatMayChange(const PrimFunc& kernel) {
  std::unordered_set<const Object*> changing = WrittenBuffers(kernel->body);
  const KernelFacts facts(kernel);
  for (const Var& p : kernel->params) {
    if (facts.aliased.count(p->name)) changing.insert(p.get());
  }
  return changing;
}

}  // namespace tl
