/*!
 * Mirrors: TVM's IR classes re-declared here, because TVM ships no compiler headers.
 *
 * A mirror repeats a TVM class field by field (ir.h, stmt.h). When the library is registered,
 * CheckMirrors() asks tvm-ffi's reflection for every field's offset, size and type and for the
 * class's total size, and any disagreement stops the import. So a mirror is either exactly what the
 * loaded TVM uses, or nothing of this library runs.
 *
 *   class EvaluateNode : public StmtNode {
 *    public:
 *     Expr value;
 *     TL_MIRROR_FINAL("tirx.Evaluate", EvaluateNode, StmtNode);
 *   };
 *   TL_REF(Evaluate, Stmt, EvaluateNode);
 *   TL_PROVE(EvaluateNode, value);
 */
#pragma once
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/tvm_ffi.h>

#include <string>
#include <vector>

// tvm-ffi 0.1.14 called this namespace details.
#if __has_include(<tvm/ffi/base_details.h>)
namespace tvm::ffi {
namespace detail = details;
}
#endif

namespace tl {

namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::AnyView;
using ffi::Array;
using ffi::Function;
using ffi::GetRef;
using ffi::make_object;
using ffi::Map;
using ffi::Object;
using ffi::ObjectPtr;
using ffi::ObjectRef;
using ffi::Optional;
using ffi::String;

/*! Type index of a registered type, or a negative number: looks up, never registers. */
inline int32_t QueryTypeIndex(const char* key, int32_t depth) {
  TVMFFIByteArray name{key, std::char_traits<char>::length(key)};
  return TVMFFITypeGetOrAllocIndex(&name, -1, depth, 0, 1, -2);
}

/*! What a mirror claims about one field of a TVM class. */
struct FieldClaim {
  std::string name;
  int64_t offset;
  int64_t size;
  std::string schema;
};

/*! What a mirror claims about a TVM class. `size` is negative where the class has members that
 * reflection does not list. */
struct MirrorClaim {
  std::string type_key;
  int64_t size;
  std::vector<FieldClaim> fields;
};

/*! All claims of this library, one entry for each TL_PROVE. */
std::vector<MirrorClaim>& MirrorClaims();

/*! Appends one line for everything in the claim that the loaded TVM contradicts. */
void CheckMirror(const MirrorClaim& claim, std::vector<std::string>* wrong);
/*! All claims; no line means that mirrors are safe to use. */
std::vector<std::string> CheckMirrors();

}  // namespace tl

#define TL_MIRROR(Key, Name, Parent)                                       \
  static constexpr const char* _type_key = Key;                            \
  static constexpr int32_t _type_depth = Parent::_type_depth + 1;          \
  static int32_t _GetOrAllocRuntimeTypeIndex() {                           \
    static const int32_t index = ::tl::QueryTypeIndex(Key, _type_depth);   \
    return index;                                                          \
  }                                                                        \
  static inline const int32_t _type_index = _GetOrAllocRuntimeTypeIndex(); \
  static int32_t RuntimeTypeIndex() noexcept { return _type_index; }       \
  static constexpr bool _type_mutable = true

/*! For classes without subclasses: `as<>` is then one comparison. */
#define TL_MIRROR_FINAL(Key, Name, Parent)    \
  static constexpr bool _type_final = true;   \
  static constexpr int _type_child_slots = 0; \
  TL_MIRROR(Key, Name, Parent)

#define TL_REF(Name, Parent, NodeName)                                  \
  class Name : public Parent {                                          \
   public:                                                              \
    TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Name, Parent, NodeName); \
    NodeName* CopyOnWrite() {                                           \
      if (!data_.unique()) data_ = ::tl::make_object<NodeName>(*get()); \
      return static_cast<NodeName*>(data_.get());                       \
    }                                                                   \
  };                                                                    \
  /*! Names the class of references to a node; never defined. */        \
  Name RefOf(const NodeName* node)

#define TL_FIELD_(Cls, field)                                     \
  ::tl::FieldClaim {                                              \
    #field, static_cast<int64_t>(__builtin_offsetof(Cls, field)), \
        static_cast<int64_t>(sizeof(Cls::field)),                 \
        ::tvm::ffi::detail::TypeSchema<decltype(Cls::field)>::v() \
  }
#define TL_FIELDS1_(C, a) TL_FIELD_(C, a)
#define TL_FIELDS2_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS1_(C, __VA_ARGS__)
#define TL_FIELDS3_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS2_(C, __VA_ARGS__)
#define TL_FIELDS4_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS3_(C, __VA_ARGS__)
#define TL_FIELDS5_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS4_(C, __VA_ARGS__)
#define TL_FIELDS6_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS5_(C, __VA_ARGS__)
#define TL_FIELDS7_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS6_(C, __VA_ARGS__)
#define TL_FIELDS8_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS7_(C, __VA_ARGS__)
#define TL_FIELDS9_(C, a, ...) TL_FIELD_(C, a), TL_FIELDS8_(C, __VA_ARGS__)
#define TL_PICK_(_1, _2, _3, _4, _5, _6, _7, _8, _9, N, ...) N
#define TL_FIELDS_(C, ...)                                                               \
  TL_PICK_(__VA_ARGS__, TL_FIELDS9_, TL_FIELDS8_, TL_FIELDS7_, TL_FIELDS6_, TL_FIELDS5_, \
           TL_FIELDS4_, TL_FIELDS3_, TL_FIELDS2_, TL_FIELDS1_, )(C, __VA_ARGS__)

// Only mirror_check.cc emits the claims, so that each is made once.
#ifdef TL_EMIT_MIRROR_CLAIMS
#define TL_CLAIM_(Cls, Size, ...)                                                              \
  static const bool tl_claim_##Cls =                                                           \
      (::tl::MirrorClaims().push_back({Cls::_type_key, Size, {TL_FIELDS_(Cls, __VA_ARGS__)}}), \
       true)
#else
#define TL_CLAIM_(Cls, Size, ...) static_assert(true)
#endif
/*! Fields and size are proved: nodes of the class may be built with make_object. */
#define TL_PROVE(Cls, ...) TL_CLAIM_(Cls, static_cast<int64_t>(sizeof(Cls)), __VA_ARGS__)
/*! Only the listed fields are proved (the class hides others): read it, never build it. */
#define TL_PROVE_READ_ONLY(Cls, ...) TL_CLAIM_(Cls, -1, __VA_ARGS__)
