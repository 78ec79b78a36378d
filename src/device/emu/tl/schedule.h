/*!
 * Which ready thread runs next, and when asynchronous work is performed. A program has to be right
 * under each of them.
 *
 * A thread runs until it waits. Round robin takes the threads as they became ready. Random takes
 * any of them, and a thread that could go on may have to stand back. Adversarial lets one role (a
 * warp, or four of them) go as far as it can, then the next one, in an order by the seed.
 */
#pragma once

#include <tl/fiber.h>
#include <tl/warp_size.h>

/*! How the machine runs a launch. */
extern "C" struct tl_machine {
  unsigned order;   // tl::emu::Order
  unsigned moment;  // tl::emu::Moment
  unsigned long seed;
  unsigned workers;  // OS threads; 0: one for each core where the order of blocks does not matter
  unsigned cores;
  unsigned long patience;  // milliseconds that a thread may run without waiting; 0: any
  void** kept;             // kKept places for memory that stays mapped between launches, or nullptr
  struct tl_timeline* timeline;  // of one block, or nullptr
};

namespace tl {
namespace emu {

enum class Order : unsigned { kRoundRobin, kRandom, kAdversarial };

/*! When asynchronous work is performed: when something waits for it, when it is issued, or either.
 */
enum class Moment : unsigned { kLate, kEarly, kRandom };

/*! All zeros when made: round robin. */
struct Schedule {
  Order order;
  Moment moment;
  uint64_t seed, state;
  Fiber** pool;  // the ready ones, of the random order
  unsigned pooled;
  Queue* roles;     // the ready ones of each role, of the adversarial order
  unsigned* turns;  // roles in their order
  unsigned role_count;
  unsigned roles_block;  // how many of them a block has; 0 in other orders
  unsigned turn;

  /*! 64 random bits: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
   * Generators, 2014). */
  uint64_t random() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  /*! Whether an operation is performed when it is issued. */
  bool early() { return moment == Moment::kRandom ? random() >> 63 : moment == Moment::kEarly; }

  /*! Threads of a role: a warp's, or those of four warps. */
  unsigned role_threads() const { return (seed % 2 ? 4 : 1) * kWarpSize; }

  void begin(uint64_t cluster);
  void add_roles(unsigned blocks);
  Fiber* next(Queue& ready);

  /*! The running thread only polls: another role goes on. */
  void pass_turn() {
    if (order == Order::kAdversarial) turn = (turn + 1) % role_count;
  }
};

/*! The choices do not depend on what ran before on this worker. */
inline void Schedule::begin(uint64_t cluster) {
  state = seed;
  state = random() ^ cluster;
  pooled = turn = role_count = 0;
}

/*! Makes room for the roles of `blocks` blocks, in a random order (Fisher and Yates). */
inline void Schedule::add_roles(unsigned blocks) {
  for (; role_count < blocks * roles_block; ++role_count) {
    const unsigned other = unsigned(random() % (role_count + 1));
    roles[role_count] = {};
    turns[role_count] = turns[other];
    turns[other] = role_count;
  }
}

/*! Takes a thread out of those that are ready; nullptr where there is none. */
inline Fiber* Schedule::next(Queue& ready) {
  if (order == Order::kRandom) {
    while (Fiber* fiber = ready.pop()) pool[pooled++] = fiber;
    if (pooled == 0) return nullptr;
    Fiber*& place = pool[random() % pooled];
    Fiber* chosen = place;
    place = pool[--pooled];
    return chosen;
  }
  while (Fiber* fiber = ready.pop()) roles[fiber->role].push(fiber);
  for (unsigned i = 0; i < role_count; ++i) {
    if (Fiber* fiber = roles[turns[turn]].pop()) return fiber;
    turn = (turn + 1) % role_count;
  }
  return nullptr;
}

}  // namespace emu
}  // namespace tl
