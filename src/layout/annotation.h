/*!
 * Layouts as annotations of a program. Each stands there twice: as the object that passes read
 * (`layout_map` on a block, `parallel_loop_layout` on a loop), and as a line of text that the
 * script printer can show (`layouts`, `loop_layout`).
 */
#pragma once
#include "layout.h"

namespace tl {

using Annotations = Map<String, Any>;

void SetLayoutMap(Annotations* annotations, const Map<Var, Layout>& layouts);
/*! The layouts by buffer; empty if the block has none. */
Map<Var, Layout> GetLayoutMap(const Annotations& annotations);
void EraseLayoutMap(Annotations* annotations);

void SetLoopLayout(Annotations* annotations, const Fragment& layout);
/*! The loop's layout, undefined if it has none. */
Fragment GetLoopLayout(const Annotations& annotations);

}  // namespace tl
