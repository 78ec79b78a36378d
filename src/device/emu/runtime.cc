/*!
 * The emulator, compiled once for all programs and linked in front of each: what a program has of
 * it too is taken from here.
 */
#define TL_EMU_RUNTIME
#include <tl/grid.h>
#include <tl/run.h>
// What only GPUs with warps of 32 lanes have.
#if TL_WARP_THREADS == 32
#include <tl/bulk_copy.h>
#include <tl/mbarrier.h>
#include <tl/tma.h>
#include <tl/warp_group.h>
#include <tl/wgmma.h>
#endif

#if TL_EMU_CHECKS
#include "checks/checks.h"
#endif
