/*!
 * Block-cooperative loop nests: T.Parallel, and the copies and fills that behave like one. A nest
 * is independent iterations over a static box (dynamic where no fragment is touched); its layout
 * says which thread runs which iteration.
 */
#pragma once
#include <vector>

#include "../layout/layout.h"
#include "../tvm/analyzer.h"
#include "tile_op.h"

namespace tl {

struct ParallelNest {
  Array<Var> vars;
  Array<Expr> extents;
  Stmt body;
  Span span;
  /*! Vector width in elements that the user wants, 0 if none. */
  int64_t coalesced_width = 0;
  /*! Copies to shared memory may be cp.async. */
  bool prefer_async = false;
  /*! Layout that the user wants, undefined if none. */
  Fragment loop_layout;
  /*! The widest vector that the body's instruction has, 0 if any. */
  int64_t max_width = 0;
  /*! A condition in the body leaves out iterations, those that would leave a fragment among them.
   */
  bool is_partial = false;
  /*! A tensor with a layout is accessed: registers that do not follow each other along an index may
   * do so in memory. */
  bool has_placed_tensor = false;
};

/*! One access of a fragment in a nest's body. */
struct FragmentAccess {
  Var buffer;
  Array<Expr> indices;
  bool is_write;
  /*! Serial loops of the body around the access: one thread runs all their iterations. For a loop
   * without constant bounds, an interval that contains the values of its variable. */
  Array<Var> inner_vars = {};
  std::vector<int64_t> inner_mins = {}, inner_extents = {};
  /*! The statement that it is part of. */
  Span span = {};
  /*! A write whose condition and value are the same in all iterations that name the element: these
   * iterations together may reach the threads that hold it. */
  bool is_uniform = false;
  /*! Dimensions in which the nest accesses several blocks of the fragment, each of a loop's extent:
   * `f[i, d]` and `f[i, d + 32]`. */
  std::vector<bool> in_blocks = {};
  /*! Where the nest would find the elements of the access, which other threads hold; undefined
   * where it tells no layout. */
  Fragment wanted = {};
};

/*! The nest of perfectly nested parallel loops; `loop` is the outermost. */
ParallelNest NestOfLoop(const ForNode* loop);
/*! What `parallel_loop_layout` on a parallel loop says, undefined if it is absent. */
Fragment LoopLayoutOf(const ForNode* loop);

std::vector<FragmentAccess> FragmentAccesses(const ParallelNest& nest);
std::vector<int64_t> StaticExtents(const ParallelNest& nest);
/*! The indices are functions of `vars` alone: no other variable, no load. */
bool ReadsOnly(const Array<Expr>& indices, const Array<Var>& vars);
/*! Are the indices the nest's variables, in order? */
bool AreIteration(const Array<Expr>& indices, const ParallelNest& nest);
/*! The indices are functions of the nest's variables and of the loops in it. */
bool IsIndexedByNest(const ParallelNest& nest, const FragmentAccess& access);

/*! Iterations follow the elements of one accessed fragment: layout = fragment o access, inner loops
 * at their first iteration. Iterations that share an element by an index v // n have neighbouring
 * registers of its thread; nullopt where others share one. */
std::optional<Fragment> LayoutFromFragment(const ParallelNest& nest, const FragmentAccess& access,
                                           const Fragment& fragment);
/*! Vectors of `width` iterations, dealt to threads round robin in row-major order. */
Fragment PlanPartition(const ParallelNest& nest, int64_t width, int64_t num_threads);
/*! The widest vector (elements) that every global and shared access of the body allows, and that
 * wastes fewest threads. */
int64_t PlanVectorWidth(const ParallelNest& nest, int64_t num_threads, bool touches_fragments,
                        Analyzer* analyzer);
/*! Each index is a loop variable, or a quotient of one, that runs over the whole dimension or over
 * one of the blocks that the nest accesses, or the access permutes the fragment: the nest can place
 * the fragment. */
bool NamesWhole(const ParallelNest& nest, const FragmentAccess& access);
/*!
 * Layout of a fragment that the nest defines. Each index must be a loop variable v over the whole
 * dimension (its blocks then stay in the thread), or v // n whose n iterations are neighbours in
 * one thread, each variable at most once, or a constant 0 of a dimension of extent 1; or all
 * iterations together name each element once (permuted_access.h). nullopt otherwise. Dimensions of
 * inner loops stay in the thread; loop variables that do not appear make replicas.
 */
std::optional<Fragment> FragmentFromLayout(const ParallelNest& nest, const FragmentAccess& access,
                                           const Fragment& loop_layout, int64_t num_threads);
/*! Every iteration finds the accessed element in the registers of its own thread; what is written
 * is written in all threads that hold it: by each iteration, or, where the write is uniform, by all
 * iterations that name the element. */
bool IsCompatible(const ParallelNest& nest, const FragmentAccess& access, const Fragment& fragment,
                  const Fragment& loop_layout);

}  // namespace tl
