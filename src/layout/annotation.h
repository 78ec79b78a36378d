/*!
 * Layouts as annotations of a program. Each stands there twice: as the object that passes read
 * (`layout_map` and `tensor_layout_map` on a block, `parallel_loop_layout` on a loop), and as a
 * line of text that the script printer can show (`layouts`, `tensor_layouts`, `loop_layout`).
 */
#pragma once
#include <utility>
#include <vector>

#include "layout.h"

namespace tl {

using Annotations = Map<String, Any>;

void SetLayoutMap(Annotations* annotations, const Map<Var, Layout>& layouts);
/*! The layouts by buffer; empty if the block has none. */
Map<Var, Layout> GetLayoutMap(const Annotations& annotations);
void EraseLayoutMap(Annotations* annotations);

/*! Where the elements of a tensor lie, and the statement that says so. */
struct TensorLayout {
  Layout layout;
  Span span;
  /*! Extents of the places (tensor_box.h); empty before CheckTensorLayouts. */
  Array<Expr> box;
};
/*! The layouts of tensors in global memory (`tensor_layout_map`), by tensor; empty if the block has
 * none. They stand apart, since they are no tables and nobody infers any. */
std::vector<std::pair<Var, TensorLayout>> GetTensorLayouts(const Annotations& annotations);
void SetTensorBoxes(Annotations* annotations, const Map<Var, Array<Expr>>& boxes);
void EraseTensorLayouts(Annotations* annotations);

/*! The buffers of which annotations of a block say something: a layout, or the value of what lies
 * outside of them. */
std::vector<Var> AnnotatedBuffers(const Annotations& annotations);

void SetLoopLayout(Annotations* annotations, const Fragment& layout);
/*! The loop's layout, undefined if it has none. */
Fragment GetLoopLayout(const Annotations& annotations);

}  // namespace tl
