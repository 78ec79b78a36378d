/*! Tile operators as the passes see them: parsed from their calls, with what they read and write.
 */
#pragma once
#include <string>
#include <vector>

#include "../tvm/build.h"

namespace tl {

/*! What the names of tile operators' ops begin with. */
inline constexpr const char* kTileOpPrefix = "tl.tileop.";
/*! Those that have no header of their own. */
inline constexpr const char* kCopyCluster = "tl.tileop.copy_cluster";
inline constexpr const char* kFill = "tl.tileop.fill";
inline constexpr const char* kReduce = "tl.tileop.reduce";
inline constexpr const char* kReducerFinalize = "tl.tileop.reducer_finalize";
inline constexpr const char* kReducerInit = "tl.tileop.reducer_init";
inline constexpr const char* kScan = "tl.tileop.scan";
inline constexpr const char* kTranspose = "tl.tileop.transpose";

/*! A box of a buffer. */
struct TileRegion {
  Var buffer;
  Array<Range> ranges;

  static TileRegion From(const Expr& e);
  /*! All of a buffer. */
  static TileRegion Whole(const Var& buffer);
  /*! All of its buffer, whose extents the launch may decide. */
  bool IsWhole() const;
  Expr ToExpr() const;
  Array<Expr> Extents() const;
  Array<Expr> Mins() const;
  /*! Rows and columns, the last two dimensions: a version of a buffer has its number in front. */
  Array<Expr> MatrixExtents() const;
  /*! The indices of an element of the matrix. */
  Array<Expr> MatrixElement(const Expr& row, const Expr& column) const;
};

/*! Does a call's op name a tile operator? */
bool IsTileOp(const CallNode* call);
/*! The name of such an op, without the prefix. */
std::string TileOpName(const CallNode* call);
/*! Call of a tile operator in an Evaluate, nullptr for other statements. */
const CallNode* AsTileOp(const Stmt& s);
/*! Call of this one, nullptr for others, too. */
const CallNode* AsTileOp(const Stmt& s, const char* op);
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
