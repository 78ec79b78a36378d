/*! What SelectInstructions leaves for the verifier. */
#pragma once

namespace tl {

/*! Attribute of a function whose gemms and copies have their instructions. */
inline constexpr const char* kSelected = "tl.selected";

}  // namespace tl
