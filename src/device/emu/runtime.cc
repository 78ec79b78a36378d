/*!
 * The emulator, compiled once for all programs and linked in front of each: what a program has of
 * it too is taken from here.
 */
#define TL_EMU_RUNTIME
#include <tl/run.h>

#if TL_EMU_CHECKS
#include "checks/checks.h"
#endif
