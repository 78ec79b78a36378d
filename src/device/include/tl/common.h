/*! What every kernel includes: scalar and vector types, conversions, arithmetic, block-wide
 * synchronisation. */
#pragma once

#include <tl/bits.h>
#include <tl/formats.h>
#include <tl/half.h>
#include <tl/math.h>
#include <tl/memory.h>
#include <tl/pair_operations.h>
#include <tl/platform.h>
#include <tl/rasterization.h>
#include <tl/sync.h>
#include <tl/traits.h>
#include <tl/vec.h>
