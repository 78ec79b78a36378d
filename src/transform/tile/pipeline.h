/*! What planning leaves on a loop and injection reads: the schedule of a software pipeline. */
#pragma once
#include <string>
#include <vector>

#include "../../op/views.h"

namespace tl {

/*! Annotation of a planned loop: the fewest versions of what an earlier stage fills; 1 if absent.
 */
inline constexpr const char* kLeastVersions = "software_pipeline_least_versions";
/*! The same: fragments that hold tiles between their loads and their stores, Array<Var>. */
inline constexpr const char* kHeldAhead = "software_pipeline_held_ahead";

/*! A planned loop. A statement of stage s works on iteration t - s in step t. */
struct Pipeline {
  const ForNode* loop;
  std::vector<Stmt> body;
  std::vector<BufferUse> uses;
  std::vector<int64_t> stage;
  /*! Place in a step, by statement, and the statements by their place. */
  std::vector<int64_t> order;
  std::vector<size_t> by_order;
  /*! The statement only fills shared memory from global memory; and may do so asynchronously. */
  std::vector<bool> fills, async;
  /*! It does so by T.tma_copy, or is about the mbarriers of such loads. */
  std::vector<bool> tma;
  int64_t max_stage = 0;
  /*! Versions, at least, of the shared buffers that a stage fills and a later one reads. */
  int64_t least_versions = 1;
  /*! The statement loads or stores a tile that a fragment holds meanwhile, else "". */
  std::vector<std::string> part;
  bool HoldsAhead() const;
};
Pipeline ReadPipeline(const ForNode* loop, const Views& views);

/*! `if condition: body` without else; any other statement has no condition. */
struct Guarded {
  Expr condition;
  Stmt body;
};
Guarded SplitGuard(const Stmt& s);

/*! Global memory, or a variable, by which a copy is indexed: what nobody writes in the loop has one
 * value in all iterations. */
bool IsCopySource(const Var& buffer);

/*! The statement only fills shared memory, from copy sources; a condition may read anything. */
bool FillsShared(const Stmt& s, const Views& views);

/*! An entry of kPipelines without its plan: place, variable, and for each statement its line, those
 * of the statements in it, and the reason. */
Map<String, Any> DescribeLoop(const ForNode* loop, const std::vector<Stmt>& body,
                              const Array<String>& reasons);
/*! Adds entries to kPipelines. */
PrimFunc WithPipelines(PrimFunc f, const Array<Any>& entries);

/*! List annotation of integers, nullopt if absent. */
std::optional<std::vector<int64_t>> ListAnnotation(const Map<String, Any>& annotations,
                                                   const char* key);
Array<Any> ToAnnotation(const std::vector<int64_t>& values);

}  // namespace tl
