/*!
 * What is compiled once for all programs (runtime.cc), and what every program compiles: a function
 * with TL_RUNTIME has its body in a header, and its code in the runtime only.
 *
 * TL_EMU_CHECKS is the set of checks (check.h), 0 for none. They do not observe the runtime, nor
 * functions with TL_UNOBSERVED.
 */
#pragma once

#ifndef TL_EMU_CHECKS
#define TL_EMU_CHECKS 0
#endif

#ifdef TL_EMU_RUNTIME
#define TL_RUNTIME inline __attribute__((used))
#else
// g++ warns (-Wattributes) that it ignores noinline here, and makes copies without it.
#define TL_RUNTIME extern inline __attribute__((gnu_inline, noinline, noipa))
#endif

#if TL_EMU_CHECKS
#define TL_UNOBSERVED __attribute__((no_sanitize("thread")))
#else
#define TL_UNOBSERVED
#endif
