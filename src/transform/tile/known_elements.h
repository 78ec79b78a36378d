/*!
 * Elements of tiles that the producer can compute for itself: of a tile that one statement writes
 * as a whole, from global memory and scalars. In
 *
 *   copy(Mask[h, 0:n], mask)
 *   for b: if mask[b] != 0: copy(K[b * 64, 0], k)
 *
 * `mask[b]` is `Mask[h, b]` to a producer that has no fragments.
 */
#pragma once
#include <optional>
#include <unordered_map>

#include "warp_roles.h"

namespace tl {

class KnownElements {
 public:
  /*! Nothing is known. */
  KnownElements() = default;
  KnownElements(const RoleSequence& body, const Views& views);

  struct Element {
    Expr value;
    /*! The statement that writes it. */
    const RoleNode* writer;
  };
  /*! nullopt where the value is not known, or not yet written at `reader`. */
  std::optional<Element> Find(const TensorLoadNode* load, const RoleNode& reader) const;
  /*! All elements of a buffer are known at `reader`. */
  bool Has(const Var& buffer, const RoleNode& reader) const;
  /*! The program of a role that has none of the tiles, with what is known in the place of loads. */
  Stmt Replace(const Stmt& program) const;

 private:
  struct Tile {
    const RoleNode* writer;
    Array<Var> vars;
    Expr value;
  };
  static std::optional<Tile> TileOf(const RoleNode& writer, const Var& buffer, const Views& views);
  static Expr ValueOf(const Tile& tile, const Array<Expr>& indices);

  std::unordered_map<const Object*, Tile> tiles_;
};

}  // namespace tl
