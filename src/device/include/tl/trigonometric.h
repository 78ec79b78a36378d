/*! Trigonometric and hyperbolic functions and their inverses, for the types of math.h. */
#pragma once

#include <tl/math.h>

namespace tl {

TL_UNARY(sin, sinf, sin)
TL_UNARY(cos, cosf, cos)
TL_UNARY(tan, tanf, tan)
TL_UNARY(asin, asinf, asin)
TL_UNARY(acos, acosf, acos)
TL_UNARY(atan, atanf, atan)
TL_UNARY(sinh, sinhf, sinh)
TL_UNARY(cosh, coshf, cosh)
TL_UNARY(tanh, tanhf, tanh)
TL_UNARY(asinh, asinhf, asinh)
TL_UNARY(acosh, acoshf, acosh)
TL_UNARY(atanh, atanhf, atanh)
TL_BINARY(atan2, atan2f, atan2)
TL_BINARY(hypot, hypotf, hypot)

}  // namespace tl
