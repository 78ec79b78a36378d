/*! Targets of kind "hip". */
#pragma once
#include "target.h"

namespace tl {

/*! The target of an architecture such as "gfx942". ValueError at `span` for one without a row, and
 * where it is not the name of one. */
std::optional<Target> AmdTarget(const std::string& arch, const Span& span);

/*! Architectures that have a row: "gfx90a, gfx942, ...". */
std::string AmdArchitectures();

/*! What some of them have. */
std::vector<FeatureRow> AmdFeatures();

}  // namespace tl
