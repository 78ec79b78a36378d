/*! The tensors of other ranks that a kernel uses (T.peer). */
#pragma once
#include <unordered_map>

#include "../tvm/functor.h"

namespace tl {

/*!
 * A peer is declared by `DeclBuffer(peer, reinterpret(handle, address))` behind
 * `address = tl.peer(..)`: the tensor that a symmetric one is on some rank, perhaps on this one.
 */
class Peers {
 public:
  Peers() = default;
  explicit Peers(const Stmt& s);

  bool IsPeer(const Var& buffer) const { return calls_.count(buffer.get()) != 0; }
  /*! The call of `tl.peer` that gives a peer's address, nullptr for another buffer. */
  const CallNode* AddressOf(const Var& buffer) const;
  /*! The symmetric tensor that a buffer is on some rank; other buffers are themselves. */
  Var TensorOf(const Var& buffer) const;

 private:
  std::unordered_map<const Object*, Call> calls_;
};

}  // namespace tl
