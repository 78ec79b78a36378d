/*! Targets of kind "cuda". */
#pragma once
#include <vector>

#include "target.h"

namespace tl {

/*! Which architectures have a feature. */
struct FeatureRow {
  Feature feature;
  const char* name;    // in messages
  int first;           // 90: sm_90 is the first that has it
  bool alone = false;  // only that one has it, under its name with suffix "a"
};

const std::vector<FeatureRow>& FeatureRows();

/*! The target of an architecture such as "sm_80" or "sm_90a"; nullopt for one without a row.
 * ValueError at `span` where it is not the name of one. */
std::optional<Target> NvidiaTarget(const std::string& arch, const Span& span);

/*! Architectures that have a row: "sm_75, sm_80, ...". */
std::string NvidiaArchitectures();

}  // namespace tl
