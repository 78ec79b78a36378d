#include "copy_instruction.h"

#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "im2col.h"

namespace tl {
namespace {

constexpr const char* kDemandedByUser = "demanded";
constexpr const char* kTouchedElsewhere = "touched_elsewhere";
constexpr const char* kAligned = "aligned";
constexpr const char* kBlockDim = "block_dim";

}  // namespace

bool CopyChoice::Has(const std::string& instruction) const {
  return AnyOf(candidates, [&](const String& c) { return c == instruction; });
}

std::string CopyChoice::WhyNot(const char* instruction) const {
  const auto it = rejected.find(instruction);
  return it == rejected.end() ? "" : std::string((*it).second);
}

const char* CopyChoice::AsyncByThreads() const {
  for (const String& candidate : candidates) {
    if (candidate == kByRegisters) return nullptr;
    for (const char* name : {kByCpAsync, kByLdsLoads}) {
      if (candidate == name) return name;
    }
  }
  return nullptr;
}

void CopyChoice::Try(const char* instruction, const std::string& why) {
  if (why.empty()) {
    candidates.push_back(instruction);
  } else {
    rejected.Set(instruction, why);
  }
}

bool IsCopy(const CallNode* call) { return IsCallTo(call, kCopy) || IsCallTo(call, kIm2col); }

Call WithChoice(const CallNode* copy, const CopyChoice& choice) {
  Map<String, Any> attrs = TileOpAttrs(copy);
  attrs.Set(kInstruction, choice.candidates);
  if (!choice.rejected.empty()) attrs.Set(kRejected, choice.rejected);
  if (choice.demanded) attrs.Set(kDemandedByUser, int64_t(1));
  if (choice.touched_elsewhere) attrs.Set(kTouchedElsewhere, int64_t(1));
  if (choice.aligned) attrs.Set(kAligned, choice.aligned);
  if (choice.block_dim) attrs.Set(kBlockDim, static_cast<int64_t>(*choice.block_dim));
  return WithTileOpAttrs(copy, attrs);
}

CopyChoice ChoiceOf(const CallNode* copy) {
  const Map<String, Any> attrs = TileOpAttrs(copy);
  CopyChoice choice;
  if (!attrs.count(kInstruction)) return choice;
  choice.candidates = attrs.at(kInstruction).cast<Array<String>>();
  if (attrs.count(kRejected)) choice.rejected = attrs.at(kRejected).cast<Map<String, String>>();
  choice.demanded = attrs.count(kDemandedByUser) != 0;
  choice.touched_elsewhere = attrs.count(kTouchedElsewhere) != 0;
  choice.aligned = TileOpIntAttr(copy, kAligned, 0);
  if (attrs.count(kBlockDim)) choice.block_dim = TileOpIntAttr(copy, kBlockDim, 0);
  return choice;
}

Call Narrowed(const CallNode* copy, const char* instruction) {
  if (!ChoiceOf(copy).Has(instruction)) {
    ThrowBug(copy->span, "Narrowed", std::string(instruction) + " is no candidate of the copy");
  }
  return WithTileOpAttr(copy, kInstruction, Array<String>{instruction});
}

CopyChoice ChoiceOfThreads(const Var& src, const Var& dst) {
  CopyChoice choice;
  if (IsShared(src) && IsFragment(dst)) choice.Try(kByLdmatrix, "");
  if (IsFragment(src) && IsShared(dst)) choice.Try(kByStmatrix, "");
  choice.Try(kByThreads, "");
  if (IsFragment(src) && IsFragment(dst)) {
    choice.Try(kByShuffles, "");
    choice.Try(kByExchange, "");
  }
  return choice;
}

CopyChoice FirstOf(const CopyChoice& candidates, bool has_async_owner,
                   const std::function<std::string(const std::string&)>& why_not) {
  CopyChoice choice = candidates;
  choice.candidates = {};
  for (const String& candidate : candidates.candidates) {
    const std::string name = candidate;
    const bool is_async = (name == kByCpAsync || name == kByLdsLoads) && !candidates.Is(name);
    // What is too narrow for cp.async is known later.
    const bool is_open = is_async && name == kByCpAsync;
    const bool is_unwaited = is_async && !has_async_owner;
    choice.Try(name.c_str(), is_unwaited ? kUnwaited : is_open ? "" : why_not(name));
    if (choice.candidates.empty()) continue;
    if (is_open) choice.candidates.push_back(kByThreads);
    return choice;
  }
  return choice;
}

}  // namespace tl
