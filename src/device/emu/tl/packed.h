/*! Arithmetic on pairs. */
#pragma once

#include <tl/pairs.h>
