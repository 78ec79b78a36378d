/*! Names of types and spelling of constants in generated C++. */
#pragma once
#include <optional>
#include <string>

#include "../tvm/ir.h"

namespace tl {

/*! "half_t", "tl::vec<float, 4>"; nullopt for a type that the device headers do not have. */
std::optional<std::string> CTypeName(DLDataType t);

/*! An expression of exactly type `t`: "half_t(0.0f)", "int64_t(3)"; `t` is a scalar that CTypeName
 * knows. */
std::string IntLiteral(int64_t value, DLDataType t);
std::string FloatLiteral(double value, DLDataType t);

/*! The text in quotes, as a string of C and as a file name in a directive. */
std::string StringLiteral(const std::string& text);

}  // namespace tl
