/*!
 * SharedConflict: may two accesses of shared memory by two different threads, or by threads of two
 * warp groups, touch one byte?
 *
 * Accesses of two buffers do if the buffers have offsets and share bytes. For those of one buffer
 * there are two ways to a "no". In some index the accesses differ for all threads, decided
 * symbolically (`(k
 * + 2) % 3` and `k % 3`). Or each element that both touch belongs to one thread, decided by
 * evaluating the indices for every thread and loop iteration: exact, but it needs constant extents.
 * If neither holds, the answer is yes.
 */
#pragma once
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "../../tvm/analyzer.h"
#include "sync_tree.h"

namespace tl {

struct AccessPair;

class SharedConflict {
 public:
  explicit SharedConflict(const SyncTree& tree);

  /*! How the later access's iteration is related to the earlier one's. */
  struct Distance {
    /*! The outermost loop that is in a later iteration for the second access; nullptr if all common
     * loops are in the same. */
    const SyncNode* loop = nullptr;
    bool next = true;  // the very next iteration, otherwise any one after it
  };
  /*! Whose accesses they are: those of one are in order. Of the two in kAccesses none are, whoever
   * makes them: the async proxy does not see what its own thread wrote. */
  enum class Between : uint8_t { kThreads, kWarpGroups, kAccesses };
  /*! `a` is executed before `b`. */
  bool MayConflict(const SharedAccess& a, const SharedAccess& b, Distance distance,
                   Between between = Between::kThreads);
  /*! The bounds of some index tell the accesses apart: of the many statements of an unrolled loop,
   * each pair is asked about. */
  bool AreApart(const SharedAccess& a, const SharedAccess& b);
  /*! Have two buffers bytes in common, or are they one? */
  bool ShareBytes(const Var& a, const Var& b) const;

 private:
  bool Decide(const SharedAccess& a, const SharedAccess& b, Distance distance, Between between);
  void NotePlace(const AllocBufferNode* alloc);
  /*! What an index may be, for all threads and iterations. */
  const std::vector<Analyzer::Bound>& BoundsOf(const SharedAccess& access);

  Analyzer analyzer_;
  /*! By the place of the access in the program; several accesses may have one. */
  struct AccessBounds {
    const SharedAccess* access = nullptr;
    std::vector<Analyzer::Bound> of_indices = {};
  };
  std::vector<AccessBounds> bounds_;
  /*! Variables of two accesses and of their loops whose values are not known. */
  std::vector<Var> OpaqueOf(const AccessPair& pair) const;
  /*! The same, or may have changed between them. */
  std::vector<Var> OpaqueBetween(const AccessPair& pair) const;

  std::unordered_set<const Object*> opaque_;
  std::vector<SyncScalar> scalars_;
  /*! First byte and the one after the last one, of buffers that have an offset. */
  std::unordered_map<const Object*, std::pair<int64_t, int64_t>> places_;
  /*! Asked of two accesses in a nest, or of all that are like those in other nests. */
  using Question =
      std::tuple<const SharedAccess*, const SharedAccess*, bool, const SyncNode*, bool, Between>;
  static Question QuestionOf(const SharedAccess& a, const SharedAccess& b, Distance distance,
                             Between between);
  std::map<Question, bool> known_;
  /*! What enumerations found, by all that decides it: the accesses of statements that are alike are
   * the same to them, whatever stands between. */
  std::map<std::vector<int64_t>, bool> enumerated_;
};

}  // namespace tl
