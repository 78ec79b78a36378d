/*! Tile operators as the passes see them: parsed from their calls, with what they read and write.
 */
#pragma once
#include <string>
#include <vector>

#include "../tvm/build.h"

namespace tl {

/*! A box of a buffer. */
struct TileRegion {
  Var buffer;
  Array<Range> ranges;

  static TileRegion From(const Expr& e);
  /*! All of a buffer. */
  static TileRegion Whole(const Var& buffer);
  Expr ToExpr() const;
  Array<Expr> Extents() const;
  Array<Expr> Mins() const;
  /*! Rows and columns, the last two dimensions: a version of a buffer has its number in front. */
  Array<Expr> MatrixExtents() const;
  /*! The indices of an element of the matrix. */
  Array<Expr> MatrixElement(const Expr& row, const Expr& column) const;
};

/*! Call of a tile operator in an Evaluate, nullptr for other statements. */
const CallNode* AsTileOp(const Stmt& s);
/*! All keywords that the user gave. */
Map<String, Any> TileOpAttrs(const CallNode* call);
/*! Value of a keyword that the user gave, nullptr-valued Any if absent. */
Any TileOpAttr(const CallNode* call, const char* key);
int64_t TileOpIntAttr(const CallNode* call, const char* key, int64_t otherwise);

/*! Buffers that a statement reads and writes, tile operators and plain loads and stores alike. */
struct BufferUse {
  std::vector<Var> reads;
  std::vector<Var> writes;
};
BufferUse CollectBufferUse(const Stmt& s);

}  // namespace tl
