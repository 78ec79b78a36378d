/*! Sizes and indices in three dimensions, and the built-in variables of a block. */
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// Variables and no macros, because a kernel may declare a local blockIdx of its own. blockIdx is
// that of the running thread's block (worker.h).
inline thread_local dim3 gridDim, blockDim, blockIdx;
