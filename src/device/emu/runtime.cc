/*!
 * The emulator, compiled once for all programs and linked in front of each: what a program has of
 * it too is taken from here.
 */
#define TL_EMU_RUNTIME
#include <tl/bulk_copy.h>
#include <tl/grid.h>
#include <tl/mbarrier.h>
#include <tl/run.h>
#include <tl/tma.h>
#include <tl/warp_group.h>
#include <tl/wgmma.h>

#if TL_EMU_CHECKS
#include "checks/checks.h"
#endif
