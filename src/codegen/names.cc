#include "names.h"

#include <cctype>
#include <iterator>
#include <sstream>

namespace tl {
namespace {

/*! Keywords of C++, built-in names of CUDA C++, names that the device headers and C's headers take.
 */
const std::unordered_set<std::string>& ReservedWords() {
  static const auto* words = [] {
    std::istringstream text(
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t "
        "char32_t class compl const const_cast constexpr continue decltype default delete do "
        "double dynamic_cast else enum explicit export extern false float for friend goto if "
        "inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq "
        "private protected public register reinterpret_cast return short signed sizeof static "
        "static_assert static_cast struct switch template this thread_local throw true try "
        "typedef typeid typename union unsigned using virtual void volatile wchar_t while xor "
        "xor_eq threadIdx blockIdx blockDim gridDim warpSize dim3 uint2 uint4 tl half_t "
        "bfloat16_t int4b_t uint4b_t fp4_e2_t int8_t int16_t int32_t int64_t uint8_t uint16_t "
        "uint32_t uint64_t size_t "
        "buf_dyn_shmem buf_shmem main linux unix errno stdin stdout stderr assert ");
    return new std::unordered_set<std::string>(std::istream_iterator<std::string>(text), {});
  }();
  return *words;
}

/*! Two underscores, or one and a capital, belong to the compiler; TL_ to macros of the headers. */
bool IsReserved(const std::string& name) {
  return ReservedWords().count(name) || name.rfind("__", 0) == 0 || name.rfind("TL_", 0) == 0 ||
         (name.size() > 1 && name[0] == '_' && std::isupper(static_cast<unsigned char>(name[1])));
}

std::string Legal(const std::string& name) {
  std::string out;
  for (char c : name) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 128 && (std::isalnum(u) || c == '_') ? c : '_';
  }
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "v" + out;
  return IsReserved(out) ? "v_" + out : out;
}

}  // namespace

void NameScopes::Leave() {
  for (const Entry& entry : scopes_.back()) {
    names_.erase(entry.var);
    used_.erase(entry.name);
  }
  scopes_.pop_back();
}

const std::string& NameScopes::Declare(const Var& var) {
  const std::string base = Legal(var->name);
  std::string name = base;
  for (int i = 1; !used_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
  scopes_.back().push_back({var.get(), name});
  return names_[var.get()] = name;
}

const std::string* NameScopes::Find(const VarNode* var) const {
  auto it = names_.find(var);
  return it == names_.end() ? nullptr : &it->second;
}

}  // namespace tl
