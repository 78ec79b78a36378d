/*! What planning leaves on a loop and injection reads: the schedule of a software pipeline. */
#pragma once
#include <string>
#include <vector>

#include "../../tvm/build.h"

namespace tl {

inline constexpr const char* kNumStages = "num_stages";
inline constexpr const char* kUserOrder = "tl_pipeline_order";
inline constexpr const char* kUserStage = "tl_pipeline_stage";
inline constexpr const char* kPlannedOrder = "software_pipeline_order";
inline constexpr const char* kPlannedStage = "software_pipeline_stage";
inline constexpr const char* kAsyncStages = "software_pipeline_async_stages";

/*! For each statement, why it stays where it is; empty for one that runs ahead. */
inline constexpr const char* kReasons = "software_pipeline_reasons";
/*! Attribute of a function: what became of each T.Pipelined, for `kernel.explain()`. */
inline constexpr const char* kPipelines = "tl.pipelines";

/*! An entry of kPipelines without its plan: place, variable, and for each statement its line and
 * the reason. */
Map<String, Any> DescribeLoop(const ForNode* loop, const std::vector<Stmt>& body,
                              const Array<String>& reasons);
/*! Adds entries to kPipelines. */
PrimFunc WithPipelines(PrimFunc f, const Array<Any>& entries);

/*! Whether a list has the very variable. */
bool Contains(const std::vector<Var>& list, const Var& v);
/*! List annotation of integers, nullopt if absent. */
std::optional<std::vector<int64_t>> ListAnnotation(const Map<String, Any>& annotations,
                                                   const char* key);
Array<Any> ToAnnotation(const std::vector<int64_t>& values);

}  // namespace tl
