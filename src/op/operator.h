/*!
 * Tile operators: one class each. An operator says which buffers it reads and writes, proposes
 * layouts, and lowers itself to the program of one thread. Passes know this interface only; adding
 * an operator is adding a file with an OperatorRegistration.
 */
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../layout/layout.h"
#include "../target/target.h"
#include "../tvm/analyzer.h"
#include "../tvm/registry.h"
#include "tile_op.h"

namespace tl {

/*!
 * Levels of inference, each run to a fixed point before the next: strict operators dictate, common
 * ones follow what is placed, preferring ones place what nobody dictates and they read best one
 * way, free ones choose. Last come loops over parts of fragments that nobody else has placed.
 */
enum class InferLevel { kStrict, kCommon, kPrefer, kFree, kParts };

/*!
 * How a loop runs that names a part of a fragment which its iterations do not tell, such as
 * `f[k, i]` in a loop over i: over all of the fragment, in the threads that hold it, or as it is
 * written, which wants the part in shared memory. Open: it has no layout before one is chosen,
 * unless the first finds everything in its threads.
 */
enum class PartForm { kOpen, kWhole, kAsWritten };

/*! What becomes of a tensor that a copy stores to. */
struct StoreTraffic {
  /*! The kernel touches it by copies from shared memory, which the threads make together, only. */
  bool by_copies_only;
  /*! It is stored to more than once: a later store counts on this one being complete. */
  bool repeated;
  /*! The regions of it that copies store to. */
  std::vector<TileRegion> regions;
};

/*! What layout inference offers to an operator. */
class LayoutScope {
 public:
  virtual ~LayoutScope() = default;
  /*! Layout of a buffer; undefined if it is not placed yet. */
  virtual Layout Find(const Var& buffer) const = 0;
  /*! Layout that the user gave a buffer; undefined if none. */
  virtual Layout FindAnnotated(const Var& buffer) const = 0;
  /*! Another name of a buffer's memory. */
  virtual bool IsView(const Var& buffer) const = 0;
  /*! Sets the layout of a buffer for the statement at `span`. A second, different fragment layout
   * is an error naming both statements; a shared buffer keeps its first layout. */
  virtual void SetLayout(const Var& buffer, const Layout& layout, const Span& span) = 0;
  /*! The program has a pointer to the buffer: someone may count on where its elements lie. */
  virtual bool IsPointedTo(const Var& buffer) const = 0;
  virtual StoreTraffic StoresTo(const Var& tensor) const = 0;
  /*! Statement that placed the buffer. */
  virtual Span PlacedBy(const Var& buffer) const = 0;
  Fragment FindFragment(const Var& buffer) const {
    Layout l = Find(buffer);
    return l.defined() ? l.as_or_throw<Fragment>() : Fragment();
  }

  int64_t num_threads = 0;
  const Target* target = nullptr;
  /*! The lowest of them, in the block. */
  int64_t first_thread = 0;
  /*! As of LoweringScope. */
  bool in_range = false, has_async_owner = false;
  Analyzer* analyzer = nullptr;
};

/*! An mbarrier that one operator has for itself, with one arrival a phase. */
struct OwnBarrier {
  Var barrier;  // uint64[1]
  /*! The parity of the phase that comes next, uint32[1], which who waits changes; undefined where
   * the operator runs once. */
  Var parity;
};

/*! What LowerTileOp offers to an operator. */
class LoweringScope {
 public:
  virtual ~LoweringScope() = default;
  virtual Fragment FragmentOf(const Var& buffer) const = 0;
  /*! Layout of a shared buffer; undefined for memory that the lowering made itself. */
  virtual Layout LayoutOf(const Var& buffer) const = 0;
  /*! The registers of one thread that a fragment became: a one-dimensional local buffer. */
  virtual Var RegistersOf(const Var& buffer) = 0;
  /*! Physical buffer and indices of an element of a shared buffer; other buffers as they are. */
  virtual std::pair<Var, Array<Expr>> ToPhysical(const Var& buffer, const Array<Expr>& indices) = 0;
  /*! New shared memory of the kernel, row-major where it gets no layout. */
  virtual Var AllocShared(const std::string& name, DLDataType dtype, const Array<Expr>& shape,
                          const Layout& layout = Layout()) = 0;
  /*! Another name of a buffer's memory. */
  virtual bool IsView(const Var& buffer) const = 0;
  virtual OwnBarrier AllocBarrier(const std::string& name) = 0;
  /*! The user says what elements outside of the tensor read as (T.annotate_safe_value). */
  virtual bool HasSafeValue(const Var& tensor) const = 0;
  /*! Lowers accesses of shared buffers inside a statement whose fragment accesses are done. */
  virtual Stmt PlaceAccesses(const Stmt& s) = 0;
  virtual StoreTraffic StoresTo(const Var& tensor) const = 0;
  /*! A line for who asks what became of the operator at `span`. */
  virtual void Note(const Span& span, const std::string& text) = 0;

  /*! Linear number of the thread in its block. */
  Expr thread;
  int64_t num_threads = 0;
  /*! The lowest of them, in the block. */
  int64_t first_thread = 0;
  /*! The threads are warps of a range (`tl.thread_range`), whose groups wait for each other only
   * where they share data: each best works on a part of its own. */
  bool in_range = false;
  const Target* target = nullptr;
  /*! The operator stands under an `async_copy` attribute: who put it there commits and waits. */
  bool has_async_owner = false;
  Analyzer* analyzer = nullptr;
};

struct FragmentAccess;

class TileOperator {
 public:
  explicit TileOperator(Span s) : span(std::move(s)) {}
  virtual ~TileOperator() = default;

  virtual BufferUse Use() const = 0;
  /*! Whether a value of the program decides if it reads one of the buffers that it reads. */
  virtual bool MayRead(const Var& buffer) const { return (void)buffer, false; }
  /*! Sets the layouts of shared memory that an MMA or TMA reads; before all other layouts. */
  virtual void InferMmaOperandLayout(LayoutScope* scope) const { (void)scope; }
  /*! Proposes layouts; true if this call set a layout or fixed the operator's own mapping. */
  virtual bool Infer(LayoutScope* scope, InferLevel level) = 0;
  /*! Sets the layouts of shared memory that has none yet, when all fragments have one. */
  virtual void InferSwizzle(LayoutScope* scope) const { (void)scope; }
  /*! Every thread runs all of it for itself, on memory of its own: it deals nothing out. */
  virtual bool IsOfThread() const { return false; }
  /*! Refuses placements that the operator cannot work with; all buffers are placed. */
  virtual void Verify(const LayoutScope& scope) const { (void)scope; }
  /*! The operator's call with the instruction that makes it (copy_instruction.h), undefined where
   * it has no choice. ValueError for a demand that layouts are against. All buffers are placed. */
  virtual Call SelectInstruction(const LayoutScope& scope) const { return (void)scope, Call(); }
  /*! Accesses of fragments whose elements other threads hold: inference lets them go through shared
   *  memory. All buffers are placed. */
  virtual std::vector<FragmentAccess> Unreached(const LayoutScope& scope) const;
  /*! Bits that a thread moves through shared memory because of where the operator's fragments are:
   *  what one choice of layouts costs beside its registers. All buffers have one. */
  virtual int64_t LayoutCost(const LayoutScope& scope) const { return (void)scope, 0; }
  /*! Whether the operator has more than one form (PartForm). */
  virtual bool HasForms() const { return false; }
  /*! Chooses a form, before the operator has a layout. */
  virtual void TakeForm(PartForm form) { (void)form; }
  /*! The operator's own mapping, undefined if it has none: what inference leaves on a loop. */
  virtual Fragment LoopLayout() const { return Fragment(); }
  virtual Stmt Lower(LoweringScope* scope) const = 0;

  Span span;
};

using OperatorFactory = std::unique_ptr<TileOperator> (*)(const CallNode* call, const Span& span);

/*! The factory of a class that reads the call itself. */
template <typename Operator>
std::unique_ptr<TileOperator> MakeOperator(const CallNode* call, const Span& span) {
  return std::make_unique<Operator>(call, span);
}

/*! Adds the op `name`, which prints as `T.<printed>(..)`, and how its calls become operators. */
class OperatorRegistration {
 public:
  OperatorRegistration(const char* name, const char* printed, OperatorFactory factory);
};

/*! acquire(barrier element, parity, buffer regions..), release(barrier element, buffer regions..):
 * see acquire.cc. */
inline constexpr const char* kAcquire = "tl.tileop.acquire";
inline constexpr const char* kRelease = "tl.tileop.release";
/*! fetch_tile(counter element, slot element, last): see fetch_tile.cc. */
inline constexpr const char* kFetchTile = "tl.tileop.fetch_tile";

/*! The operator of a statement: a tile operator's call or a parallel loop; nullptr for others. */
std::unique_ptr<TileOperator> OperatorOf(const Stmt& s);

}  // namespace tl
