#include "peers.h"

#include "rank_intrinsics.h"
#include "tile_op.h"

namespace tl {
namespace {

class PeerCollector : public StmtExprVisitor {
 public:
  std::unordered_map<const Object*, Call> peers;

 protected:
  void Visit_(const BindNode* op) final {
    if (IsCallTo(op->value, kPeer)) addresses_[op->var.get()] = op->value.as_or_throw<Call>();
  }
  void Visit_(const DeclBufferNode* op) final {
    if (!IsCallTo(op->data, "tirx.reinterpret")) return;
    const Expr address = op->data.as<CallNode>()->args[0];
    if (IsCallTo(address, kPeer)) peers[op->buffer.get()] = address.as_or_throw<Call>();
    const auto it = addresses_.find(address.get());
    if (it != addresses_.end()) peers[op->buffer.get()] = it->second;
  }

 private:
  std::unordered_map<const Object*, Call> addresses_;
};

}  // namespace

Peers::Peers(const Stmt& s) {
  PeerCollector collector;
  collector(s);
  calls_ = std::move(collector.peers);
}

const CallNode* Peers::AddressOf(const Var& buffer) const {
  const auto it = calls_.find(buffer.get());
  return it == calls_.end() ? nullptr : it->second.get();
}

Var Peers::TensorOf(const Var& buffer) const {
  const CallNode* call = AddressOf(buffer);
  return call ? AsAddressOf(call->args[0])->source.as_or_throw<Var>() : buffer;
}

}  // namespace tl
