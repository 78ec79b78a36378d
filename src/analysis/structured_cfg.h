/*!
 * The structured control flow of a kernel, with what each statement does to memory and to
 * asynchronous queues. It is built for tile programs and for thread programs alike; a reader says
 * which statements start asynchronous operations.
 *
 * A loop or branch has nodes of its own where waits may stand inside of it: where all threads run
 * it together, or where an operation is started inside. Any other statement is a leaf. So is a loop
 * that starts nothing: a wait in it would be one of its first iteration.
 */
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../op/intrinsics.h"
#include "../op/views.h"
#include "../tvm/analyzer.h"
#include "uniformity.h"

namespace tl {

struct CfgNode;

/*! Elements that a statement or an operation accesses. */
struct MemoryAccess {
  Var memory;  // the buffer, not a view of it
  /*! Under the name that the statement uses; nullopt for any elements. */
  std::optional<TileRegion> region;
  bool writes;
};

/*! What a statement does that an operation in flight may have to be finished for. */
struct CfgEffects {
  std::vector<MemoryAccess> accesses;
  /*! The widest scope whose threads may rely, after it, on what came before. A relaxed atomic
   * operation gives them none. */
  ThreadScope tells = ThreadScope::kThread;
  /*! It tells the block without meeting its threads. */
  bool arrives = false;
  /*! It may leave a loop or the kernel. */
  bool jumps = false;
};

/*! A statement that starts an asynchronous operation and commits its group. */
struct AsyncIssue {
  const AsyncQueueRow* queue;
  std::string name;
  std::vector<MemoryAccess> sources;
  /*! Empty if nothing depends on when they are written. */
  std::vector<MemoryAccess> destinations;
  /*! Operations of one chain need no wait between their writes of one buffer; empty for none. */
  std::string chain;
  /*! What a wait for it names. */
  Expr result;
  /*! The program waits for it itself. */
  bool by_hand = false;
  /*! The statement without its own wait. */
  Stmt issue;

  // Set by BuildCfg.
  int order = 0;  // in the program's text
  Span span;
  std::vector<const CfgNode*> loops;  // around, the outermost first
};

/*! How far an operation has to be. */
enum class Completion : uint8_t { kStarted, kHasRead, kComplete };

/*! A wait, and why it stands where it stands. */
struct AsyncWait {
  const AsyncQueueRow* queue;
  int64_t pending;  // groups that may stay in flight
  Completion until;
  /*! Operations that are complete behind it on all ways. */
  std::vector<const AsyncIssue*> complete;
  std::string why;
};

struct CfgNode {
  enum class Kind : uint8_t { kLeaf, kSequence, kIf, kLoop, kRange };
  Kind kind = Kind::kLeaf;
  Stmt stmt;
  /*! Effects of all of a leaf or range, or of what decides over a loop's or branch's body. */
  CfgEffects effects;
  /*! Outside of loops: it uses shared memory that nothing in front of it uses. */
  bool uses_new_memory = false;
  std::unique_ptr<AsyncIssue> issue;
  /*! A wait of the program's own. */
  std::optional<AsyncWait> wait;
  std::vector<std::unique_ptr<CfgNode>> body, otherwise;
  /*! Variables that each iteration of a loop binds anew, to more than arithmetic. */
  std::vector<Var> bound;

  /*! Planned: in front of the statement, and behind a leaf or at the end of a body, or of a
   * branch's other body; behind a loop, if it has run. */
  std::vector<AsyncWait> before, at_end, at_other_end, behind;
};

/*! What a form of the program says of asynchronous operations. */
class CfgReader {
 public:
  virtual ~CfgReader() = default;
  /*! The operation that a statement starts, if any; `together` if all threads of its range run it.
   */
  virtual std::unique_ptr<AsyncIssue> IssueOf(const Stmt& s, bool together) = 0;
  /*! The program's own wait that a statement is. */
  virtual std::optional<AsyncWait> WaitOf(const Stmt& s) = 0;
};

/*! A statement with other ones inside of it: a scope, a loop, a branch; of a sequence, `body`. */
Stmt WithBodies(const Stmt& s, const Stmt& body, const Stmt& otherwise);
/*! Effects of a statement with all that is inside of it. */
CfgEffects EffectsOfStmt(const Stmt& s, const Views& views);
/*! The tree of a kernel; the analyzer gets the ranges of its loops and threads. */
std::unique_ptr<CfgNode> BuildCfg(const Stmt& kernel, const Views& views, Analyzer* analyzer,
                                  CfgReader* reader);
/*! Does the tree start an operation? */
bool HasIssue(const CfgNode& node);
/*! The statements again, with waits where they are planned. */
Stmt WithWaits(const CfgNode& root, const std::function<Stmt(const AsyncWait&, const Span&)>& emit);

}  // namespace tl
