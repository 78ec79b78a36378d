/*!
 * Signals between ranks in a kernel whose warps have roles.
 *
 * A role's program is in the program's order, so what is left to prove is the order between roles.
 * The consumer signals: a signal comes behind what the producer loaded in front of it if the
 * consumer has waited for these tiles. A wait belongs to the role that it is for: to the producer
 * if tiles are loaded behind it. The consumer comes behind such a wait where it waits for one of
 * these tiles, because the producer's arrival at `full` comes behind it. Until then the consumer
 * does nothing that the wait is for: it touches no tensor and does not signal. The producer comes
 * to a wait earlier than the block did, so nothing in front of it may change the signal's value
 * back.
 */
#pragma once
#include "../../op/peers.h"
#include "warp_roles.h"

namespace tl {

/*! A leaf that orders memory between ranks. */
bool OrdersRanks(const RoleNode& node);
bool HasRankOrder(const RoleSequence& body);

/*!
 * Gives `role` the producer to the waits that come before its loads; the fills are marked. Returns
 * why the program's order would not be kept, with the statement in `where`; "" if it is.
 */
std::string PlaceRankOrder(const KernelInfo& kernel, const Peers& peers, RoleSequence* body,
                           Span* where);

/*! No run of a block comes to both: they stand in the branches of one `if` outside of loops. */
bool AreExclusive(const RoleNode& a, const RoleNode& b);

/*! The statement that one thread of a role runs: a wait of a role of one thread. */
Stmt ByOneThread(const Stmt& s);

/*! `roles` under the attributes that name the peers declared below bodies of `body`. */
Stmt UnderPeerNames(const Stmt& body, const Stmt& roles);

}  // namespace tl
