/*! Operations of vectors on two elements at once: none here, so they are done element by element.
 */
#pragma once

#include <tl/vec.h>
