/*! Intrinsics and operators of kernels that several GPUs run together: addresses in the memory of
 * other ranks, signals between ranks, the barrier of all ranks. */
#pragma once
#include <vector>

#include "intrinsics.h"

namespace tl {

std::vector<Intrinsic> RankIntrinsics();

/*! peer(element, addresses, rank, ranks): the address in the memory of `rank` that the element has
 * here. `addresses` has the address of the tensor's first element, for each of the ranks. */
inline constexpr const char* kPeer = "tl.peer";
/*! peer_map(maps, rank, ranks): the place of a rank's tensor map, one of those that the host has
 * made for a symmetric tensor; tensor_map_at(place): the map, an operand of copies by TMA. */
inline constexpr const char* kMapOfPeer = "tl.peer_map";
inline constexpr const char* kTensorMapAt = "tl.tensor_map_at";
/*! Function attribute of a kernel: the parameters that have a tensor map for each rank. */
inline constexpr const char* kPeerMaps = "tl.peer_maps";
/*! Second argument of a barrier (kSync) that is one of the threads of its range. */
inline constexpr const char* kOfRange = "of range";
/*! What a thread does before its block signals, and after its block has waited. */
inline constexpr const char* kBeforeSignal = "tl.before_signal";
inline constexpr const char* kBehindWait = "tl.behind_wait";
/*! signal_set(element, value), signal_add(element, value), signal_wait_until<comparison>(element,
 * value, rank, name): by one thread; for a report, its rank and the signal's name. */
inline constexpr const char* kSignalSet = "tl.signal_set";
inline constexpr const char* kSignalAdd = "tl.signal_add";
inline constexpr const char* kSignalWait = "tl.signal_wait_until";
/*! sync_ranks_arrive(row, tensor, rank, ranks, thread, threads, addresses),
 * sync_ranks_wait(row, rank, ranks, thread, threads): the two halves of the barrier of all ranks.
 */
inline constexpr const char* kSyncRanksArrive = "tl.sync_ranks_arrive";
inline constexpr const char* kSyncRanksWait = "tl.sync_ranks_wait";

/*! signal(element, value, "set" or "add"), signal_wait_until(element, value, comparison, rank),
 * sync_ranks(row, tensor, addresses, rank, ranks): see signal.cc. */
inline constexpr const char* kSignalOp = "tl.tileop.signal";
inline constexpr const char* kSignalWaitOp = "tl.tileop.signal_wait_until";
inline constexpr const char* kSyncRanksOp = "tl.tileop.sync_ranks";

/*! A statement that orders memory between ranks: others may not move past it. */
bool OrdersRanks(const CallNode* call);

}  // namespace tl
