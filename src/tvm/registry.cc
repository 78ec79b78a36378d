#include "registry.h"

#include <tvm/ffi/reflection/accessor.h>

#include <regex>

namespace tl {
namespace {

std::vector<void (*)()>& Registrations(RegistrationPhase phase) {
  static std::vector<void (*)()> types, rest;
  return phase == RegistrationPhase::kTypes ? types : rest;
}

Array<String> ToStrings(const std::vector<std::string>& lines) {
  Array<String> out;
  for (const std::string& line : lines) out.push_back(line);
  return out;
}

/*! Registers everything; returns what the mirrors found wrong, in which case nothing was
 * registered. */
Array<String> RegisterAll() {
  // Another copy of this library was first: TVM has one registry, and it is filled.
  if (Function::GetGlobal("tl.ExtendPassConfig")) return {};
  const std::vector<std::string> wrong = CheckMirrors();
  if (!wrong.empty()) return ToStrings(wrong);
  for (RegistrationPhase phase : {RegistrationPhase::kTypes, RegistrationPhase::kRest}) {
    for (auto body : Registrations(phase)) body();
  }
  return {};
}

/*! TVM refuses config keys that it does not know; the field itself takes any. */
void ExtendPassConfig(const ObjectRef& context, const Map<String, Any>& extra) {
  static const ffi::reflection::FieldGetter get("transform.PassContext", "config");
  static const ffi::reflection::FieldSetter set("transform.PassContext", "config");
  auto config = get(context).cast<Map<String, Any>>();
  for (auto [key, value] : extra) config.Set(key, value);
  set(context, config);
}

/*! What is wrong with a claim about one field, for tests of the proof itself. */
Array<String> CheckFieldClaim(String type_key, String field, int64_t offset, int64_t size,
                              String schema) {
  std::vector<std::string> wrong;
  CheckMirror({type_key, -1, {{field, offset, size, schema}}}, &wrong);
  return ToStrings(wrong);
}

Registration registry_registration([] {
  RegisterFunction("ExtendPassConfig", ExtendPassConfig);
  RegisterFunction("CheckFieldClaim", CheckFieldClaim);
});

}  // namespace

Registration::Registration(void (*body)(), RegistrationPhase phase) {
  Registrations(phase).push_back(body);
}

void RegisterOp(const std::string& name, const std::string& printed, CallEffect effect) {
  TL_GLOBAL("ir.RegisterOp")(String(name), String(""));
  const Function& attr = TL_GLOBAL("ir.RegisterOpAttr");
  attr(String(name), String("TCallEffectKind"), static_cast<int>(effect), 10);
  attr(String(name), String("TScriptPrinterName"), String(printed), 10);
}

void RegisterPass(const std::string& name, PrimFuncTransform transform) {
  const std::string pass_name = "tl." + name;
  auto make = [transform, pass_name]() -> ObjectRef {
    auto run = Function::FromTyped(
        [transform](ffi::RValueRef<PrimFunc> f, ObjectRef, ObjectRef) -> PrimFunc {
          return transform(*std::move(f));
        });
    Any info = TL_GLOBAL("transform.PassInfo")(0, String(pass_name), Array<String>(), false);
    return TL_GLOBAL("tirx.transform.CreatePrimFuncPass")(run, info).cast<ObjectRef>();
  };
  RegisterFunction("transform." + name, make);
}

Any PassConfig(const std::string& key) {
  static const ffi::reflection::FieldGetter get("transform.PassContext", "config");
  ObjectRef context = TL_GLOBAL("transform.GetCurrentPassContext")().cast<ObjectRef>();
  auto config = get(context).cast<Map<String, Any>>();
  auto it = config.find(key);
  return it == config.end() ? Any(nullptr) : (*it).second;
}

bool PassConfigFlag(const std::string& key, bool default_value) {
  Any v = PassConfig(key);
  return v == nullptr ? default_value : v.cast<bool>();
}

}  // namespace tl

TVM_FFI_DLL_EXPORT_TYPED_FUNC(tl_register, tl::RegisterAll);
