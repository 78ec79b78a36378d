/*! The conversions of two elements of 4 bits at once. */
#pragma once

#include <tl/pair_operations.h>
