/*!
 * Views: buffers that are other names of a buffer's memory. A view is declared by the statement
 * DeclBuffer(view, buffer_data(buffer)) in front of its uses; it has as many bits as the buffer, in
 * the same (row-major) order.
 */
#pragma once
#include <unordered_map>
#include <vector>

#include "../layout/layout.h"
#include "../tvm/functor.h"
#include "tile_op.h"

namespace tl {

class Views {
 public:
  Views() = default;
  explicit Views(const Stmt& s);

  /*! The buffer whose memory it is: itself if it is no view. */
  Var RootOf(const Var& buffer) const;
  bool IsView(const Var& buffer) const { return root_.count(buffer.get()) != 0; }
  /*! Two names of the same memory, or one. */
  bool IsSameMemory(const Var& a, const Var& b) const { return RootOf(a).same_as(RootOf(b)); }
  /*! Two names of the same memory, or of tensors that may be one. */
  bool MayShareMemory(const Var& a, const Var& b) const;
  /*! What a statement reads and writes, views under the names of their buffers. A tensor that may
   * be one with others is written with each of them. */
  BufferUse UseOf(const Stmt& s) const;
  /*! The other tensors that may be the memory of a buffer that is no view, as
   * T.annotate_restrict_buffers says. */
  std::vector<Var> OthersOf(const Var& buffer) const;

  /*! All views, in program order. */
  std::vector<Var> all;

 private:
  std::unordered_map<const Object*, Var> root_;
  /*! Tensors that may be one memory. */
  std::vector<Var> aliased_;
};

/*! The buffer behind `buffer_data(buffer)`; undefined for other data. */
Var ViewedBy(const DeclBufferNode* decl);
DeclBuffer DeclareView(const Var& view, const Var& buffer, const Span& span);

/*! Declares views in front of the body of the block that they are found in: those that the block,
 * or an annotation of it, names. One of a view that it does not name is of that one's buffer. */
class ViewDeclarer : public StmtExprMutator {
 protected:
  Stmt Mutate_(const SBlockNode* op) final;

  /*! DeclBuffer of views in the innermost block, in the order that they will have. */
  std::vector<Stmt> declared_;
};

/*!
 * The layout that puts each element of buffer `to` where `layout` puts the same bits of buffer
 * `from`. Where the dtypes are equal the physical coordinates are the same; otherwise they are one
 * number, counted in elements of `to`. nullopt if an element of `to` would be scattered: over
 * several threads, or not contiguous and aligned.
 */
std::optional<Layout> CarryLayout(const Layout& layout, const Var& from, const Var& to);

}  // namespace tl
