#include "pipeline_hazards.h"

#include "../../tvm/error.h"
#include "pipeline_reads.h"

namespace tl {
namespace {

/*! Whether statement i of iteration n runs before statement j of iteration n + `distance`. */
bool RunsBefore(const Pipeline& p, size_t i, size_t j, int64_t distance) {
  const int64_t later = p.stage[j] + distance;
  return p.stage[i] < later || (p.stage[i] == later && p.order[i] < p.order[j]);
}

bool Conflict(const BufferUse& a, const BufferUse& b, const Var& buffer) {
  const bool a_writes = Contains(a.writes, buffer), b_writes = Contains(b.writes, buffer);
  return (a_writes && (b_writes || Contains(b.reads, buffer))) ||
         (b_writes && Contains(a.reads, buffer));
}

/*! "written at line 3" */
std::string AccessText(const Pipeline& p, size_t i, const Var& buffer,
                       const std::string& when = "") {
  const Span& span = p.body[i]->span;
  const std::string line = span.defined() ? " at line " + std::to_string(span->line) : "";
  return (Contains(p.uses[i].writes, buffer) ? "written" : "read") + when + line;
}

std::string Place(const Pipeline& p, size_t i) {
  return " (stage " + std::to_string(p.stage[i]) + ", order " + std::to_string(p.order[i]) + ")";
}

/*! In the program `first` stands before `second`. In the pipeline `second` would run before
 * `first`. `when` says of which iteration `second` is, if not of the same one. */
[[noreturn]] void ThrowOrder(const Pipeline& p, const Var& buffer, size_t first, size_t second,
                             const std::string& when, const std::string& wanted) {
  ThrowAt(p.body[second]->span, "ValueError",
          "T.Pipelined: found " + std::string(buffer->name) + " (" + ScopeOf(buffer) + ") " +
              AccessText(p, second, buffer, when) + Place(p, second) + " before it is " +
              AccessText(p, first, buffer) + Place(p, first) + ", " + wanted);
}

/*! Refuses a buffer that needs several versions and can have one only. It needs them because the
 * second access of `pair`, of the next iteration, would run before the first one. */
void CheckCanHaveVersions(const Pipeline& p, const Var& buffer, const Views& views,
                          bool is_read_outside, std::pair<size_t, size_t> pair) {
  // PipelinePlanning moves statements at an mbarrier only if the mbarrier can have versions.
  if (IsBarrier(buffer)) return;
  const std::string next = " by the next iteration";
  if (!IsShared(buffer)) {
    ThrowOrder(p, buffer, pair.first, pair.second, next,
               "wanted one version of it to do; order them the other way round, give both one "
               "stage, or copy what is needed later to another buffer");
  }
  const std::string repair = "; give both statements the same stage";
  for (size_t u = 0; u < p.body.size(); ++u) {
    if (!Contains(p.uses[u].reads, buffer) || IsSupplied(p.body, u, buffer, views)) continue;
    ThrowOrder(p, buffer, pair.first, pair.second, next,
               "which takes several versions of it, but what is " + AccessText(p, u, buffer) +
                   " the same iteration has not certainly written" + repair);
  }
  if (!is_read_outside) return;
  ThrowOrder(p, buffer, pair.first, pair.second, next,
             "which takes several versions of it, but it is read outside of the loop" + repair);
}

}  // namespace

bool NeedsNoVersions(const Pipeline& p) {
  for (size_t i = 0; i < p.body.size(); ++i) {
    for (const Var& buffer : p.uses[i].writes) {
      for (size_t j = 0; j < p.body.size(); ++j) {
        if (i == j || !Conflict(p.uses[i], p.uses[j], buffer)) continue;
        const bool in_iteration = i < j ? RunsBefore(p, i, j, 0) : RunsBefore(p, j, i, 0);
        if (!in_iteration || !RunsBefore(p, i, j, 1) || !RunsBefore(p, j, i, 1)) return false;
      }
    }
  }
  return true;
}

int64_t VersionsOf(const Pipeline& p, const Var& buffer, const Views& views, bool is_read_outside) {
  const size_t n = p.body.size();
  int64_t versions = 1;
  std::pair<size_t, size_t> pair;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i == j || !Conflict(p.uses[i], p.uses[j], buffer)) continue;
      if (i < j && !RunsBefore(p, i, j, 0)) {
        ThrowOrder(p, buffer, i, j, "",
                   "wanted the order of the body; give the former a later stage, or a later order "
                   "in the same stage");
      }
      const bool passes_on = IsShared(buffer) && p.stage[i] < p.stage[j] && i < j;
      const int64_t least = passes_on ? p.least_versions : 1;
      while (versions < least || !RunsBefore(p, i, j, versions)) {
        ++versions;
        pair = {i, j};
      }
    }
  }
  if (versions > 1) CheckCanHaveVersions(p, buffer, views, is_read_outside, pair);
  return versions;
}

}  // namespace tl
