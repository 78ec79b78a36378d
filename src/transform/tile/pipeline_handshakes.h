/*!
 * Roles that a program writes by hand in a pipelined loop (`T.ws`): one fills tiles, another uses
 * them, and two mbarriers say when. The one that fills waits at `empty` for the phase before, and
 * arrives at `full`; the one that uses the tile waits at `full` for this phase, and arrives at
 * `empty`. With versions of tiles and barriers the same statements, where they are, let the first
 * role run ahead of the second.
 *
 * In iteration c of those that the kernel runs, both use slot c % versions, whose mbarriers are in
 * phase c / versions. Slots that the program has by hand, as many of all, stay as they are
 * (pipeline_rings.h). This is right where nothing but these handshakes orders the roles, and where
 * an iteration uses nothing that another one has left in a tile.
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
  /*! As many slots of each, that the program has by hand; 1 where it has none, and versions are to
   * be made. */
  int64_t slots = 1;
  /*! A role gives one of them up an iteration later. */
  bool late = false;
  /*! By the buffer of mbarriers, the elements of which the phase before is waited for. */
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
  /*! Of the kernel. */
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
