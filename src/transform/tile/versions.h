/*! Buffers with several versions: a leading dimension of slots, one for each iteration under way.
 */
#pragma once
#include <unordered_map>

#include "../../layout/annotation.h"
#include "../../op/views.h"
#include "../../tvm/functor.h"

namespace tl {

/*! The slot of an iteration, which counts from 0; slot 0 where it is undefined. */
Expr SlotOf(const Expr& iteration, int64_t versions);

/*! Makes the versioned buffers, their views and their layouts. */
class VersionMaker {
 public:
  /*! How many versions each buffer has, views included; those that are absent have no slots. */
  explicit VersionMaker(std::unordered_map<const Object*, int64_t> versions)
      : counts(std::move(versions)) {}

  /*! The buffer with its slots; itself if it has none. The same for each call. */
  Var Versioned(const Var& buffer);
  Array<Var> Versioned(const Array<Var>& buffers);
  /*! The declaration of a view, of the versioned buffer if its buffer is one. */
  Stmt Declare(const DeclBufferNode* view, const Views& views);
  /*! The layout that the user gave to a buffer holds for each of its versions. */
  void ExpandLayouts(Annotations* annotations) const;

  std::unordered_map<const Object*, int64_t> counts;
  std::unordered_map<const Object*, Var> made;
};

/*! Points every access of a versioned buffer at the slot of one iteration. */
class VersionSelector : public StmtExprMutator {
 public:
  /*! The versioned buffer of each, views included; what is absent stays. */
  std::unordered_map<const Object*, Var> versioned;
  /*! Iteration that the statement works on; slot 0 where undefined. */
  Expr iteration;

 protected:
  Stmt Mutate_(const BufferStoreNode* op) final;
  Expr Mutate_(const TensorLoadNode* op) final;
  Expr Mutate_(const TensorRegionNode* op) final;

 private:
  Expr Slot(const Var& buffer) const;
  Array<Expr> Prepend(const Var& buffer, const Array<Expr>& indices);
};

}  // namespace tl
