/*! The conversions of two elements of 4 bits at once, which few kernels have. */
#pragma once

#include <tl/float4_pairs.h>
