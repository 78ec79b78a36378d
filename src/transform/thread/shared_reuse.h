/*!
 * SharedReuse: finds shared buffers of one loop iteration, or of roles that run at the same time,
 * that may have the same bytes one after the other, and the synchronisation that this takes.
 *
 * SharedLifetimes takes a loop for one moment. Here a buffer lives from the first to the last
 * statement of an iteration that uses it. That is right if the iteration overwrites the buffer
 * before it reads it, as `tl.rewrites` states. At the end of the life, asynchronous operations that
 * still access the buffer are awaited.
 *
 * If one role fills a buffer and another reads it, its life is that in the reader's program. The
 * reader waits for every fill, so no fill is in flight after its last use. A fill of the next
 * buffer in the same bytes waits at an mbarrier at which the reader arrives (`Handshake`).
 */
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../../analysis/uniformity.h"
#include "../../op/views.h"
#include "../../target/target.h"

namespace tl {

class SharedReuse {
 public:
  explicit SharedReuse(const Stmt& kernel);

  /*! What it takes that two buffers have the same bytes. kWaits: waits for asynchronous operations,
   * and barriers. kHandshake: two mbarriers between the role that fills one buffer and the role
   * that reads the other. */
  enum class Price : uint8_t { kImpossible, kWaits, kHandshake };
  Price PriceOf(const Object* a, const Object* b) const;

  /*! The asynchronous operations that are awaited at the end of a buffer's life, as words; "" for
   * none. */
  std::string Unawaited(const Object* buffer) const;
  /*! One buffer's life is over before the other's begins. */
  bool IsBefore(const Object* a, const Object* b) const;
  /*! It is used outside of all loops, once in a run of the kernel. */
  bool IsUsedOnce(const Object* buffer) const;
  /*! Notes that two buffers have bytes in common for such a price. */
  void Share(const Object* a, const Object* b);
  void ShareNothing();
  /*! Bytes of the mbarriers that what is shared wants. */
  int64_t HandshakeBytes() const { return 16 * static_cast<int64_t>(handshakes_.size()); }
  /*! The kernel with the waits for what is shared; `offset` is the place of the first pair of
   * mbarriers, 16 bytes each. */
  Stmt WithWaits(const Stmt& kernel, int64_t offset, const Target& target) const;

  /*! A part of the program that is run as often as its first statement. */
  struct Region {
    int around = -1;        // the item that it is a part of; -1 for a program
    int range = 0;          // the region of the program that it is in: of the block, or of a role
    bool is_loop = false;   //
    bool together = true;   // the range's threads run it together
    bool by_one = false;    // one thread of them runs it
    bool jumps = false;     // something leaves it early
    bool of_role = false;   // a range that warp specialisation has made
    int64_t loop_tag = -1;  // the same for the loops of all roles that were one
    int64_t threads = 0;    // of a range
  };
  /*! A statement of a region's sequence, by its place in the program: what is in it comes next. */
  struct Item {
    int region;
    int index;  // in the region
    int end;    // the last item in it, or itself
  };
  enum class Kind : uint8_t { kRead, kWrite, kCopy, kStore, kProduct, kFill };
  struct Event {
    int item;
    Kind kind;
    int scope;  // of `tl.rewrites` for the buffer, -1 outside of all
  };
  struct Scope {
    int first, last, region;
  };
  struct Wait {
    int item;
    Kind kind;
  };

 private:
  friend class ReuseWalk;
  friend class WaitWriter;
  using Events = std::map<int, std::vector<Event>>;

  /*! From the first to the last item, in the reader's program. */
  struct Life {
    bool known = false;
    int range = 0, region = 0;
    int first = 0, last = 0;
    std::vector<Kind> unawaited;  // at the end
    std::vector<int> fillers;     // ranges of others that fill it
    bool remote = false;          // other blocks fill it, too
  };
  /*! A role waits in front of a fill until another role has finished its use of the same bytes, in
   * the same iteration of a loop or in the previous one. In a loop, the second mbarrier keeps the
   * other role from arriving again before this role has seen the phase. */
  struct Handshake {
    int arrive_behind, wait_before;  // items
    int from, to;                    // ranges
    bool same_iteration, in_loop, by_one;
    bool operator<(const Handshake& o) const {
      return std::tie(arrive_behind, wait_before, same_iteration) <
             std::tie(o.arrive_behind, o.wait_before, o.same_iteration);
    }
  };

  Life LifeOf(const Events& events, bool remote) const;
  bool FindUsers(const Events& events, Life* life) const;
  void FindEnd(const std::vector<Event>& events, Life* life) const;
  bool IsFresh(const std::vector<Event>& events, int region) const;
  /*! The handshakes that `first` and `second`, which follow each other, want; false if there is no
   * place for one. */
  bool HandshakesOf(const Life& first, const Life& second, const Object* a, const Object* b,
                    std::vector<Handshake>* out) const;
  bool Connect(const Life& done, const Object* filled, int filler, int loop, bool same_iteration,
               std::vector<Handshake>* out) const;
  bool MayWait(const Handshake& h, int done) const;

  std::vector<int> RegionsAround(int region) const;
  bool IsInside(int region, int outer) const;
  bool AreTogether(int region) const;
  int ItemIn(int region, int item) const;
  int LoopOfBoth(int a, int b) const;

  std::vector<Region> regions_;
  std::vector<Item> items_;
  std::vector<Scope> scopes_;
  std::vector<Wait> waits_;
  std::unordered_map<const Object*, Events> events_;
  std::unordered_map<const Object*, Life> lives_;
  std::map<Handshake, int> handshakes_;
  /*! Behind an item, by its place. */
  std::map<int, std::vector<Kind>> closed_;
};

}  // namespace tl
