/*! Targets of kind "cuda". */
#pragma once
#include <vector>

#include "target.h"

namespace tl {

/*! The target of an architecture such as "sm_80" or "sm_90a"; nullopt for one without a row.
 * ValueError at `span` where it is not the name of one. */
std::optional<Target> NvidiaTarget(const std::string& arch, const Span& span);

/*! Architectures that have a row: "sm_75, sm_80, ...". */
std::string NvidiaArchitectures();

/*! What some of them have. */
std::vector<FeatureRow> NvidiaFeatures();

}  // namespace tl
