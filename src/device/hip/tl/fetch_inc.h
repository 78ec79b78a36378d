/*! The counter of blocks that fetch their tiles. */
#pragma once

#include <tl/atomic.h>
