/*!
 * What this library adds to TVM: global functions, ops, passes. Nothing is added when the shared
 * object is loaded; the exported function `tl_register` adds everything once, so that a second copy
 * in one process is harmless.
 */
#pragma once
#include <cstdint>
#include <string>

#include "build.h"

namespace tl {

/*! When registrations run: those of types first. The order of files is the linker's, and what the
 * others register may have objects of these types. */
enum class RegistrationPhase : uint8_t { kTypes, kRest };

/*! A block of registrations: `static Registration r([] { ... });` in the file that implements them.
 */
class Registration {
 public:
  explicit Registration(void (*body)(), RegistrationPhase phase = RegistrationPhase::kRest);
};

enum class CallEffect : int { kPure = 1, kOpaque = 3 };

/*! Adds an op. `printed` is the name that the script printer shows after `T.`. */
void RegisterOp(const std::string& name, const std::string& printed, CallEffect effect);

/*! Adds `tl.transform.<name>`, a function without arguments that makes the pass `tl.<name>`. */
using PrimFuncTransform = PrimFunc (*)(PrimFunc);
void RegisterPass(const std::string& name, PrimFuncTransform transform);
/*! Adds the pass that is named as its function is. */
#define TL_REGISTER_PASS(Name) \
  const Registration Name##_registration([] { RegisterPass(#Name, Name); })

/*! Adds a global function `tl.<name>`. */
template <typename F>
void RegisterFunction(const std::string& name, F f) {
  Function::SetGlobal("tl." + name, Function::FromTyped(f, "tl." + name));
}

/*! Value of a pass-config key in the current PassContext, nullptr-valued Any if absent. */
Any PassConfig(const std::string& key);
bool PassConfigFlag(const std::string& key, bool default_value);

}  // namespace tl
