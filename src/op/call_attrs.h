/*! Attributes of a tile operator's call that passes write. */
#pragma once
#include "tile_op.h"

namespace tl {

/*! The call with these attributes and no others. */
inline Call WithTileOpAttrs(const CallNode* call, const Map<String, Any>& attrs) {
  return With(call, &CallNode::attrs, attrs.empty() ? DictAttrs() : MakeDict(attrs));
}

/*! The call with one attribute more, or another value of it. */
inline Call WithTileOpAttr(const CallNode* call, const char* key, const Any& value) {
  Map<String, Any> attrs = TileOpAttrs(call);
  attrs.Set(key, value);
  return WithTileOpAttrs(call, attrs);
}

}  // namespace tl
