/*!
 * Roles that a program writes itself in a pipelined loop (`T.ws`). One role fills a tile: it waits
 * at `empty` for the previous phase and arrives at `full`. Another role uses the tile: it waits at
 * `full` for this phase and arrives at `empty`. If tiles and mbarriers get versions, the first role
 * runs ahead of the second, and no statement moves.
 *
 * In iteration c, counted over the whole kernel, both roles use slot c % versions, whose mbarriers
 * are in phase c / versions. Rings that the program numbers itself stay as they are
 * (pipeline_rings.h). Versions are legal if nothing but these handshakes orders the roles, and if
 * no iteration uses what another one has left in a tile.
 */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../../analysis/thread_set.h"
#include "pipeline_barriers.h"

namespace tl {

/*! What gets versions in a loop. */
struct Handshakes {
  int64_t versions = 1;
  std::vector<Var> tiles;
  std::vector<Var> barriers;
  /*! The slots of a ring that the program numbers itself; 1 if versions are to be made. */
  int64_t slots = 1;
  /*! A role releases a slot of the ring one iteration late. */
  bool late = false;
  /*! For each buffer of mbarriers, the elements whose waits are for the previous phase. */
  Map<Var, Array<IntImm>> phase_before;

  Any ToAnnotation() const;
  /*! nullopt for a loop without. */
  static std::optional<Handshakes> Of(const ForNode* loop);
};

/*! Where a loop stands. */
struct LoopPlace {
  const Stmt& function_body;
  const ForNode* loop;
  const Views& views;
  /*! The threads of the kernel. */
  const std::vector<Axis>& threads;
  /*! The kernel's mbarriers have their numbers of arrivals there. */
  const SBlockNode* block;
};

/*! A statement of the body lets some threads use mbarriers apart from the others. */
bool HasRoles(const std::vector<Stmt>& body);

/*! What gets `num_stages` versions, or why nothing does. */
struct FoundHandshakes {
  std::optional<Handshakes> handshakes;
  /*! The statement of the body that it is about, and the reason. */
  size_t statement = 0;
  std::string why;
};
/*! `body` is the loop's, with the values of names in their places. */
FoundHandshakes FindHandshakes(const LoopPlace& place, const std::vector<Stmt>& body,
                               int64_t num_stages);

}  // namespace tl
