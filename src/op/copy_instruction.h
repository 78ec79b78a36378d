/*!
 * The instructions of a copy as attributes of its call, which SelectInstructions writes and passes
 * behind it narrow. They print:
 *
 *   "instruction": ["tma", "cp.async", "vector"]: what may make the copy, the best first; where one
 *     is left, it does. "vector" are loads and stores of the threads.
 *   "rejected": {"tma": "a conversion from float32 to float16"}: why others do not. Of a demand for
 *     TMA, why no pass may run the copy ahead by itself;
 *   "demanded": 1: the program asks for what is left;
 *   "aligned": 16: every row that cp.async would move begins and ends at multiples of so many bytes
 *     on both sides; absent where fewer than 4 are proved;
 *   "bytes": 16: those of a lane that one instruction of "buffer_load_lds" moves;
 *   "touched_elsewhere": 1: TMA would store the tile if copies alone stored to its tensor;
 *   "block_dim": 0: in a cluster, the dimension, of those longer than 1, in which TMA can load a
 *     part of the tile for each block.
 *
 * A load by TMA or by cp.async needs a pass that lets threads wait for it: one that none narrows to
 * either is made by the threads. So is one by "registers" that no pipeline splits into two copies.
 *
 * Layout inference narrows the list to one, since layouts decide, too, and adds what that one is to
 * do: "tma": the boxes (TmaPlan), "matrices": those of ldmatrix and its like. "cp.async",
 * "vector" are left to a copy that a pipeline commits and waits for: the elements of a thread that
 * are too narrow for cp.async are stored by it.
 */
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>

#include "call_attrs.h"

namespace tl {

inline constexpr const char* kCopy = "tl.tileop.copy";

inline constexpr const char* kByTma = "tma";
inline constexpr const char* kByCpAsync = "cp.async";
/*! A load that a thread waits for by counting, whose lanes write side by side to shared memory. */
inline constexpr const char* kByLdsLoads = "buffer_load_lds";
/*! A load to a fragment, ahead in a pipeline, and a store from there to shared memory. */
inline constexpr const char* kByRegisters = "registers";
/*! Vectors of threads by a buffer resource, whose range the hardware checks. */
inline constexpr const char* kByBufferLoads = "buffer_load";
inline constexpr const char* kByLdmatrix = "ldmatrix";
inline constexpr const char* kByStmatrix = "stmatrix";
inline constexpr const char* kByDsReadTr = "ds_read_tr";
/*! Those that move matrices (matrix_copy.h). */
inline constexpr std::array<const char*, 3> kByMatrices = {kByLdmatrix, kByStmatrix, kByDsReadTr};
inline constexpr const char* kByThreads = "vector";
/*! Between fragments: lanes of a warp exchange registers. */
inline constexpr const char* kByShuffles = "shfl";
/*! Between fragments: the threads write and read a tile of shared memory. */
inline constexpr const char* kByExchange = "exchange";

/*! Attributes with what the instruction is to do. */
inline constexpr const char* kTmaBoxes = "tma";
inline constexpr const char* kMatrices = "matrices";

/*! The fewest bytes of a cp.async (PTX ISA, cp.async). */
inline constexpr int64_t kCpAsyncBytes = 4;

/*! Node of an `async_copy` attribute whose stores the compiler has proved to be cp.async. */
inline constexpr const char* kProved = "proved";

struct CopyChoice {
  Array<String> candidates;
  Map<String, String> rejected;
  bool demanded = false;
  bool touched_elsewhere = false;
  int64_t aligned = 0;
  std::optional<size_t> block_dim;

  bool Has(const std::string& instruction) const;
  /*! It is the only one left. */
  bool Is(const std::string& instruction) const {
    return candidates.size() == 1 && Has(instruction);
  }
  /*! Why the instruction does not make the copy, "" where nothing is against it. */
  std::string WhyNot(const char* instruction) const;
  /*! What a pipeline has the copy made by asynchronously, by the threads: kByCpAsync, or
   * kByLdsLoads where registers are no better; nullptr without either. */
  const char* AsyncByThreads() const;
  /*! Adds a candidate, or why it is none if `why` has words. */
  void Try(const char* instruction, const std::string& why);
};

/*! Is the call one of tl.tileop.copy or tl.tileop.im2col? */
bool IsCopy(const CallNode* call);
Call WithChoice(const CallNode* copy, const CopyChoice& choice);
/*! The choice that a call has; without candidates in front of SelectInstructions. */
CopyChoice ChoiceOf(const CallNode* copy);
/*! The copy that one of its candidates makes. */
Call Narrowed(const CallNode* copy, const char* instruction);
/*! The choice where all layouts are known: the first candidate that `why_not` has no words against.
 * `has_async_owner`: someone commits and waits for cp.async. */
CopyChoice FirstOf(const CopyChoice& candidates, bool has_async_owner,
                   const std::function<std::string(const std::string&)>& why_not);
/*! Why a load is not made by what no pass lets threads wait for. */
inline constexpr const char* kUnwaited = "no pass lets threads wait for it";
/*! The choice of a copy that a pass makes of its own, for threads, between these buffers. */
CopyChoice ChoiceOfThreads(const Var& src, const Var& dst);

}  // namespace tl
