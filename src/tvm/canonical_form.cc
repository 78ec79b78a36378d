/*!
 * The canonical form of a program: bytes that two programs share only if they are the same to every
 * pass. The kernel cache (tilelang/cache) keeps kernels by it.
 *
 * It is written from reflection: class and every field of every node, the places in the user's
 * source among them, floats by their bits. The script of a program is no such form, as it leaves
 * out layouts and digits, nor is TVM's structural hash, whose 64 bits may collide. An object whose
 * identity counts, such as a variable, is written where it is met first and is a number from then
 * on. What is not data (a function, a module, a Python object) has no canonical form: `TypeError`.
 */
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/reflection/accessor.h>

#include <unordered_map>

#include "registry.h"

namespace tl {
namespace {

/*! Expressions that share parts may be exponentially larger when they are written out. */
constexpr size_t kLargest = size_t{1} << 26;

class Writer {
 public:
  ffi::Bytes Write(const Any& value) {
    Visit(value);
    return ffi::Bytes(std::move(out_));
  }

 private:
  void Visit(const Any& value) {
    if (out_.size() > kLargest) Refuse("a program of more than 64 MiB");
    const int32_t type = value.type_index();
    switch (type) {
      case ffi::TypeIndex::kTVMFFINone:
        out_ += 'n';
        return;
      case ffi::TypeIndex::kTVMFFIBool:
        out_ += value.cast<bool>() ? 't' : 'f';
        return;
      case ffi::TypeIndex::kTVMFFIInt:
        return Scalar('i', value.cast<int64_t>());
      case ffi::TypeIndex::kTVMFFIFloat:
        return Scalar('d', value.cast<double>());
      case ffi::TypeIndex::kTVMFFIBigInt: {
        TVMFFIAny raw = ffi::AnyView(value).CopyToTVMFFIAny();
        const TVMFFIByteArray words = TVMFFIBigIntGetContentByteArray(&raw);
        return Text('I', words.data, words.size);
      }
      case ffi::TypeIndex::kTVMFFIDataType: {
        const auto dtype = value.cast<DLDataType>();
        return Scalar('y', std::array<int32_t, 3>{dtype.code, dtype.bits, dtype.lanes});
      }
      case ffi::TypeIndex::kTVMFFIDevice: {
        const auto device = value.cast<DLDevice>();
        return Scalar('v', std::array<int32_t, 2>{device.device_type, device.device_id});
      }
      case ffi::TypeIndex::kTVMFFISmallStr:
      case ffi::TypeIndex::kTVMFFIStr: {
        const auto text = value.cast<String>();
        return Text('s', text.data(), text.size());
      }
      case ffi::TypeIndex::kTVMFFISmallBytes:
      case ffi::TypeIndex::kTVMFFIBytes: {
        const auto bytes = value.cast<ffi::Bytes>();
        return Text('b', bytes.data(), bytes.size());
      }
      default:
        break;
    }
    if (type < ffi::TypeIndex::kTVMFFIStaticObjectBegin) Refuse(value.GetTypeKey());
    VisitObject(value, type);
  }

  void VisitObject(const Any& value, int32_t type) {
    if (type == ffi::TypeIndex::kTVMFFIArray) {
      return Elements('[', value.cast<Array<Any>>());
    }
    if (type == ffi::TypeIndex::kTVMFFIList) {
      return Elements('l', value.cast<ffi::List<Any>>());
    }
    if (type == ffi::TypeIndex::kTVMFFIMap) return Pairs('{', value.cast<Map<Any, Any>>());
    if (type == ffi::TypeIndex::kTVMFFIDict) return Pairs('m', value.cast<ffi::Dict<Any, Any>>());
    if (type == ffi::TypeIndex::kTVMFFIShape) {
      const auto shape = value.cast<ffi::Shape>();
      return Text('h', reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t));
    }
    const auto* object = value.cast<const Object*>();
    const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type);
    const std::string key(info->type_key.data, info->type_key.size);
    if (key == OpNode::_type_key) {
      // An operator is its name: what else it has are tables of the compiler.
      const String& name = static_cast<const OpNode*>(object)->name;
      return Text('o', name.data(), name.size());
    }
    // Without a metadata nobody has said what the fields of the class are.
    if (info->metadata == nullptr) Refuse(key);
    if (HasIdentity(info->metadata->structural_eq_hash_kind)) {
      const auto [met, is_new] = numbers_.emplace(object, static_cast<int64_t>(numbers_.size()));
      if (!is_new) return Scalar('#', met->second);
    }
    Text('(', key.data(), key.size());
    ffi::reflection::ForEachFieldInfo(info, [&](const TVMFFIFieldInfo* field) {
      Visit(ffi::reflection::FieldGetter(field)(object));
    });
    out_ += ')';
  }

  static bool HasIdentity(TVMFFISEqHashKind kind) {
    return kind == kTVMFFISEqHashKindFreeVar || kind == kTVMFFISEqHashKindDAGNode ||
           kind == kTVMFFISEqHashKindUniqueInstance;
  }

  template <typename Sequence>
  void Elements(char tag, const Sequence& elements) {
    Scalar(tag, static_cast<int64_t>(elements.size()));
    for (const Any& element : elements) Visit(element);
  }

  template <typename Mapping>
  void Pairs(char tag, const Mapping& pairs) {
    Scalar(tag, static_cast<int64_t>(pairs.size()));
    for (const auto& [key, value] : pairs) {
      Visit(key);
      Visit(value);
    }
  }

  template <typename T>
  void Scalar(char tag, const T& value) {
    out_ += tag;
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void Text(char tag, const char* data, size_t size) {
    Scalar(tag, static_cast<int64_t>(size));
    out_.append(data, size);
  }

  [[noreturn]] static void Refuse(const std::string& what) {
    TVM_FFI_THROW(TypeError) << "no canonical form of " << what;
    __builtin_unreachable();
  }

  std::string out_;
  std::unordered_map<const Object*, int64_t> numbers_;
};

Registration canonical_form_registration([] {
  RegisterFunction("CanonicalForm", [](const Any& program) { return Writer().Write(program); });
});

}  // namespace
}  // namespace tl
