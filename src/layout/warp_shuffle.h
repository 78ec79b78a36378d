/*!
 * From one fragment to another whose elements the same warps hold, by shuffles.
 *
 * Both are linear maps of bits: of the element's number, and of the replica's, to the number of the
 * thread and of the register. Going from a place of the destination back to its element, and from
 * there to a place of the source, gives a linear map of places. In a round of shuffles each lane
 * sends one register and receives one. Rounds are numbered by c, which runs over the destination's
 * registers: in round c the lane of thread t receives register c ^ M t, from lane P t ^ A c, which
 * sends register N t' ^ K c. M is chosen so that no lane is asked for two registers in a round.
 * Where it has to be asked for more than the destination has registers, there are more rounds, and
 * lanes keep what they receive in one of them.
 *
 * Example: a warp transposes 32 x 32 numbers, whose rows lanes have. In round c lane t receives
 * element (t ^ c, t) from lane t ^ c: M, N, P, A and K are all the identity.
 *
 * Extents that are no powers of two are blocks of such extents, which differ by a constant in the
 * register's number.
 */
#pragma once
#include "bit_matrix.h"
#include "layout.h"

namespace tl {

/*! A register's number by its coordinates, which are bits. */
struct RegisterBits {
  /*! What each coordinate contributes; by xor, or added. */
  std::vector<int64_t> parts;
  bool is_sum = true;

  int64_t Number(int64_t coordinates) const;
};

struct WarpShuffle {
  /*! For each block, the first register of the source and of the destination. */
  std::vector<std::pair<int64_t, int64_t>> blocks;
  RegisterBits source, target;
  /*! Threads count from these, by xor. */
  int64_t first_source, first_target;
  /*! Columns for bits of the thread: `sends` reorders the registers of the source that it sends,
   * `keeps` those of the destination, and further rounds behind; it receives from `lanes`. */
  BitColumns sends, keeps, lanes;
  /*! Columns for bits of the thread and of the source's register: together 0 where the source holds
   * an element. */
  BitColumns empty_threads, empty_registers;
  /*! Columns for bits of a round: the source's register and the lane. A round's number has a word's
   * elements lowest: `element_bits` of them go together. */
  BitColumns sent_register, lane_of_round;
  int element_bits;
  /*! From the destination's register, and further rounds behind it, to the round. */
  BitColumns round_of;
  /*! How many rounds of words there are, and how many of these, the first ones, stay in a thread.
   */
  int64_t words, kept_words;

  /*! How many shuffles of 32 bits, and how many selections of one register of two, a thread makes.
   */
  int64_t Shuffles(int bits) const;
  int64_t Selects() const;
  /*! Their time, in bits that a thread could move through shared memory meanwhile. */
  int64_t CostBits(int bits) const;
};

/*! The masks over the thread's bits and the offsets by which an order of registers is changed, one
 * after the other: with odd parity of the masked bits, register r becomes register r ^ offset. */
struct LaneSwap {
  int64_t threads, offset;
};
std::vector<LaneSwap> LaneSwaps(const BitColumns& reorder);

/*!
 * The shuffles that make `to` of `from`, in elements of `bits` each; a thread that holds nothing in
 * `to` gets any values. nullopt where an element lies in other warps only, where a fragment is not
 * linear, and where there is no whole number of warps.
 */
std::optional<WarpShuffle> PlanWarpShuffle(const Fragment& from, const Fragment& to, int bits,
                                           int64_t num_threads, int64_t warp_threads);

/*! What the same costs through shared memory, with its barriers. */
int64_t SharedCostBits(const Fragment& from, const Fragment& to, int bits);

}  // namespace tl
