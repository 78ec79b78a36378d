/*! Tiles of shared memory that a program hands to the async proxy itself, by a descriptor of wgmma
 * or a load of TMA, and what these take them for. */
#pragma once
#include <optional>
#include <unordered_set>

#include "../../layout/layout.h"
#include "../../op/views.h"

namespace tl {

/*! Which argument of a load or a descriptor by hand is the tile; nullopt for other calls. */
std::optional<int> ExplicitTile(const CallNode* call);

/*! Buffers of which a kernel names elements or regions, beside pointers to them. */
std::unordered_set<const Object*> NamedByElements(const Stmt& kernel, const Views& views);

/*! Refuses (ValueError) a call whose swizzle is not that of the tile's layout. Where all that
 * touches a row-major tile are of the async proxy, its bytes are the program's. */
void CheckSwizzle(const CallNode* call, const Layout& layout, bool named_by_elements,
                  const Span& span);

}  // namespace tl
