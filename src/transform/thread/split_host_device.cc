/*!
 * SplitHostDevice: one device function for each kernel of a function, and the host's part as a list
 * of launches.
 *
 * In:  a flat thread program; at its top, kernels (nests of `thread_extent` attributes), flat
 * views of parameters, and values that the host computes (Bind).
 * Out: first the host function, whose body is one `tl.launch(name, arguments..)` for each kernel;
 * then the kernels `f_kernel`, `f_kernel_1`, .. in launch order. A kernel's parameters are the
 * buffers, then the scalars that it uses, in the order of the function's parameters, then the
 * symbolic dimensions in order of appearance, then the tensor maps (`tl.tensor_maps`), one for all
 * equal calls of `tl.create_tma_descriptor`, which become arguments of the launch;
 * `tl.prefetch_tma_descriptor()` becomes one for each of them. Maps of peers are one such parameter
 * for all ranks
 * (`tl.peer_maps`), of which `tl.peer_map`, where the peer is declared, finds the rank's. It
 * carries `tl.grid`, `tl.block` and `tl.cluster` (three extents each), `tl.dyn_shared_bytes` (an
 * expression, with `tl.dyn_shared_limit`, where the launch decides it), `tl.cooperative` (threads
 * wait for the whole grid), `tl.persistent` (any number of blocks works on all tiles, of which the
 * grid has one a block), `tl.dependent` (they wait for the kernel before), `tl.l2_hit_ratio`
 * where there is one (the name of a parameter, a float), `target`, `global_symbol`,
 * `tl.kernel_number` in launch order, `tl.written` and `tl.touched`, the names of the parameters
 * that it may write and that it loads or stores in every launch. A kernel that is the user's own
 * text has its name, all parameters and symbols of the function as its own (who launches it leaves
 * out the last ones that the text does not take), and the text as `tl.source`.
 * Refuses: two kernels of one name; other statements outside of a kernel; block extents that are
 * not constant; two extents for one index; two tensors with a hit ratio in one kernel, or one that
 * the function does not take.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../analysis/shared_memory.h"
#include "../../analysis/touched_tensors.h"
#include "../../op/intrinsics.h"
#include "../../op/peers.h"
#include "../../op/rank_intrinsics.h"
#include "../../op/tensor_map_spec.h"
#include "../../target/target.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../../tvm/tile_numbers.h"

namespace tl {
namespace {

constexpr const char* kLaunch = "tl.launch";
/*! A kernel whose blocks, of any number, take tile after tile: its grid has one for each tile. */
constexpr const char* kPersistent = "tl.persistent";
/*! Names of the parameters that a kernel loads or stores in every launch (AlwaysTouched). */
constexpr const char* kTouched = "tl.touched";

/*! What a kernel's body uses and declares. */
class KernelUses : public StmtExprVisitor {
 public:
  explicit KernelUses(const Stmt& kernel) { Visit(kernel); }

  /*! Variables that come from outside, in order of appearance. */
  std::vector<Var> Free() const {
    std::vector<Var> out;
    for (const Var& v : used_) {
      if (!defined_.count(v.get())) out.push_back(v);
    }
    return out;
  }

  Array<Expr> Extents(const std::string& prefix) const {
    Array<Expr> out;
    for (const char* axis : {".x", ".y", ".z"}) {
      auto it = extents_.find(prefix + axis);
      out.push_back(it == extents_.end() ? Expr(MakeInt(1)) : it->second);
    }
    return out;
  }

  Expr shared_bytes = MakeInt(0);  // dynamic ones
  int64_t static_bytes = 0;
  Array<Expr> cluster = {MakeInt(1), MakeInt(1), MakeInt(1)};
  bool cooperative = false;
  bool persistent = false;  // takes tile after tile, by as many blocks as there are
  bool dependent = false;   // waits for the kernels that it depends on by itself
  bool overlaps = false;    // runs at the same time as another kernel of the stream
  /*! The attribute that says what persists in L2, nullptr without one. */
  const AttrStmtNode* l2 = nullptr;
  /*! The call that says what source text the kernel is, nullptr for others. */
  const CallNode* source = nullptr;

 protected:
  void Visit_(const VarNode* op) override {
    if (seen_.insert(op).second) used_.push_back(GetRef<Var>(op));
  }
  void Visit_(const CallNode* op) override {
    if (IsCallTo(op, kSourceKernel)) source = op;
    cooperative |= IsCallTo(op, kSyncGrid);
    persistent |= IsCallTo(op, kTilesOfBlock);
    dependent |= IsCallTo(op, kPdlSync);
    overlaps |= dependent || IsCallTo(op, kPdlTrigger);
    Default(op);
  }
  void Visit_(const ForNode* op) override {
    Define(op->loop_var);
    Default(op);
  }
  void Visit_(const BindNode* op) override {
    Define(op->var);
    Default(op);
  }
  void Visit_(const LetNode* op) override {
    Define(op->var);
    Default(op);
  }
  void Visit_(const DeclBufferNode* op) override {
    Define(op->buffer);
    Visit(op->data);
  }
  void Visit_(const AllocBufferNode* op) override {
    Define(op->buffer);
    if (ScopeOf(op->buffer) == "shared") static_bytes += SharedBytes(op);
    if (!IsInDynamicArray(op->buffer)) return;
    const auto end = op->annotations.find(kSharedEnd);
    if (end != op->annotations.end()) {
      shared_bytes = (*end).second.cast<Expr>();
      Visit(shared_bytes);
    } else if (const auto known = AsInt(shared_bytes)) {
      shared_bytes = MakeInt(std::max(*known, ToInt(SharedBegin(op)) + SharedBytes(op)));
    }
  }
  void Visit_(const AttrStmtNode* op) override {
    if (op->attr_key == kClusterDims) cluster = op->node.cast<Array<Expr>>();
    if (op->attr_key == kL2HitRatio) {
      if (l2) {
        ThrowAt(op->span, "ValueError",
                "found T.annotate_l2_hit_ratio for two tensors, " + l2->node.cast<String>() +
                    " and " + op->node.cast<String>() +
                    ", in one kernel, wanted one, since a launch has one window of persisting L2; "
                    "leave out the smaller tensor's");
      }
      l2 = op;
    }
    if (op->attr_key != kThreadExtent) return Default(op);
    const auto thread = op->node.cast<IterVar>();
    Define(thread->var);
    const auto [it, fresh] = extents_.emplace(std::string(thread->thread_tag), op->value);
    if (!fresh && !Analyzer().CanProveEqual(it->second, op->value)) {
      ThrowAt(op->span, "ValueError",
              "found two extents for " + it->first +
                  " in one kernel, wanted one. Split the kernel in two");
    }
    Visit(op->body);
  }

 private:
  void Define(const Var& v) { defined_.insert(v.get()); }

  std::vector<Var> used_;
  std::unordered_set<const Object*> seen_;
  std::unordered_set<const Object*> defined_;
  std::unordered_map<std::string, Expr> extents_;
};

Var TensorOf(const TensorMapSpec& map) {
  return AsAddressOf(map.pointer)->source.as_or_throw<Var>();
}

/*! Replaces the tensor maps that a kernel's body describes by variables. */
class MapCollector : public StmtExprMutator {
 public:
  explicit MapCollector(const Stmt& kernel) : peers_(kernel) {}
  struct Map {
    Var param;
    Call call;
    Span span;
    bool of_peers;
  };
  std::vector<Map> maps;

  /*! The kernel's body; who declares a peer finds its maps. */
  Stmt Run(const Stmt& kernel) {
    const Stmt with_params = Mutate(kernel);
    struct PlaceWriter : StmtExprMutator {
      std::unordered_map<const Object*, std::vector<Stmt>>* places;
      Stmt Mutate_(const SeqStmtNode* op) override {
        std::vector<Stmt> out;
        for (const Stmt& s : op->seq) {
          out.push_back(Mutate(s));
          const auto* decl = s.as<DeclBufferNode>();
          const auto it = decl ? places->find(decl->buffer.get()) : places->end();
          if (it != places->end()) AppendRange(&out, it->second);
        }
        return MakeSeq(out);
      }
    } writer;
    writer.places = &binds_;
    return binds_.empty() ? with_params : writer.Mutate(with_params);
  }

 protected:
  Stmt Mutate_(const EvaluateNode* op) override {
    span_ = op->span;
    return Default<Stmt>(op);
  }
  Expr Mutate_(const CallNode* op) override {
    if (!IsCallTo(op, kCreateTmaDescriptor)) return Default<Expr>(op);
    TensorMapSpec spec = TensorMapSpec::FromCall(op);
    const Var tensor = TensorOf(spec);
    const CallNode* peer = peers_.AddressOf(tensor);
    if (!peer) return ParamOf(tensor, GetRef<Call>(op), false);
    spec.pointer = peer->args[1];
    spec.peers = true;
    const Var param = ParamOf(TensorOf(spec), spec.ToCall(), true);
    Var& place = places_[{tensor.get(), param.get()}];
    if (!place.defined()) {
      place = MakeVar(std::string(tensor->name) + "_map", kInt64);
      const Expr found = CallOp(kMapOfPeer, {param, peer->args[2], peer->args[3]}, PrimTy(kInt64));
      binds_[tensor.get()].push_back(MakeBind(place, found, span_));
    }
    return CallOp(kTensorMapAt, {place}, op->ty);
  }

 private:
  Var ParamOf(const Var& tensor, const Call& call, bool of_peers) {
    for (const Map& map : maps) {
      if (ffi::StructuralEqual()(map.call, call)) return map.param;
    }
    auto var = make_object<VarNode>();
    var->name = std::string(tensor->name) + (of_peers ? "_maps" : "_desc");
    var->ty = call->ty;
    maps.push_back({Var(var), call, span_, of_peers});
    return maps.back().param;
  }

  const Peers peers_;
  /*! Where the map of a peer is, and what finds these places behind a peer's declaration. */
  std::map<std::pair<const Object*, const Object*>, Var> places_;
  std::unordered_map<const Object*, std::vector<Stmt>> binds_;
  Span span_;
};

/*! Writes out `tl.prefetch_tma_descriptor()`. */
class PrefetchExpander : public StmtExprMutator {
 public:
  explicit PrefetchExpander(const std::vector<MapCollector::Map>& maps) : maps_(maps) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) override {
    if (!IsCallTo(op->value, kPrefetchTmaDescriptor)) return GetRef<Stmt>(op);
    std::vector<Stmt> one_each;
    for (const MapCollector::Map& map : maps_) {
      if (map.of_peers) continue;
      one_each.push_back(MakeEvaluate(CallOp(kPrefetchTmaDescriptor, {map.param}), op->span));
    }
    return MakeSeq(one_each);
  }

 private:
  const std::vector<MapCollector::Map>& maps_;
};

class Splitter {
 public:
  explicit Splitter(const PrimFunc& f) : function_(f) {
    const Any symbol = GetAttr(f, kGlobalSymbol);
    if (symbol == nullptr) ThrowBug(f->span, "SplitHostDevice", "found a function without a name");
    name_ = symbol.cast<String>();
  }

  Array<PrimFunc> Run() {
    for (const Stmt& s : FlatSeq(function_->body)) HostStatement(s);
    if (kernels_.empty()) {
      ThrowAt(function_->span, "ValueError",
              "found no kernel in " + name_ +
                  ", wanted at least one. Put the statements into `with T.Kernel(..)`");
    }
    Array<PrimFunc> out = {WithBody(function_, MakeSeq(launches_))};
    for (const PrimFunc& kernel : kernels_) out.push_back(kernel);
    return out;
  }

 private:
  void HostStatement(const Stmt& s) {
    if (const auto* decl = s.as<DeclBufferNode>()) {
      if (IsCallTo(decl->data, "tirx.buffer_data")) {
        const auto viewed = decl->data.as<CallNode>()->args[0].as_or_throw<Var>();
        view_of_[decl->buffer.get()] = viewed;
        view_[viewed.get()] = decl->buffer;
        return;
      }
    }
    if (const auto* bind = s.as<BindNode>()) {
      host_values_.map[bind->var.get()] = host_values_.Mutate(bind->value);
      return;
    }
    const auto* attr = s.as<AttrStmtNode>();
    if (attr && attr->attr_key == kThreadExtent) return Kernel(host_values_.Mutate(s), s->span);
    if (const auto* evaluate = s.as<EvaluateNode>(); evaluate && AsInt(evaluate->value)) return;
    ThrowAt(s->span, "ValueError",
            "found a statement outside of a kernel (" + s->GetTypeKey() +
                "), wanted kernels only. Move it into `with T.Kernel(..)`");
  }

  void Kernel(const Stmt& described, const Span& span) {
    MapCollector collector(described);
    const Stmt with_maps = collector.Run(described);
    const Stmt body = PrefetchExpander(collector.maps).Mutate(with_maps);
    const KernelUses uses(body);
    const std::string number = kernels_.empty() ? "" : "_" + std::to_string(kernels_.size());
    const bool is_text = uses.source != nullptr;
    const std::string name = is_text ? ToString(uses.source->args[0]) : name_ + "_kernel" + number;
    if (!kernel_names_.insert(name).second) {
      ThrowAt(span, "ValueError",
              "found two kernels named " + name + ", wanted a name for each; rename one");
    }
    Array<Var> params = is_text ? AllOfFunction() : Params(uses.Free(), collector);
    Array<Expr> args = {StringOf(name)};
    for (const Var& p : params) args.push_back(OfFunction(p));
    Array<Var> maps, of_peers;
    for (const MapCollector::Map& map : collector.maps) {
      params.push_back(map.param);
      (map.of_peers ? of_peers : maps).push_back(map.param);
      args.push_back(OfFunction(map));
    }
    launches_.push_back(MakeEvaluate(CallOp(kLaunch, args), span));

    auto node = make_object<PrimFuncNode>(*function_.get());
    node->params = params;
    node->body = body;
    node->span = span;
    PrimFunc kernel(node);
    const Array<Expr> block = uses.Extents("threadIdx");
    for (const Expr& extent : block) {
      if (AsInt(extent)) continue;
      ThrowAt(span, "ValueError",
              "found a number of threads that is known only at run time, wanted a constant. "
              "Pass threads=128 or another number to T.Kernel");
    }
    kernel = WithAttr(kernel, kGlobalSymbol, String(name));
    kernel = WithAttr(kernel, kKernelNumber, int64_t(kernels_.size()));
    kernel = WithAttr(kernel, kGrid, uses.Extents("blockIdx"));
    kernel = WithAttr(kernel, kBlock, block);
    kernel = WithAttr(kernel, kCluster, uses.cluster);
    kernel = WithAttr(kernel, kCooperative, uses.cooperative);
    kernel = WithAttr(kernel, kPersistent, uses.persistent);
    kernel = WithAttr(kernel, kDependent, uses.dependent);
    // What another kernel writes meanwhile is not constant.
    if (uses.overlaps) kernel = WithAttr(kernel, kNoAlias, false);
    if (uses.l2) kernel = WithAttr(kernel, kL2HitRatio, L2Window(uses.l2));
    if (!maps.empty()) kernel = WithAttr(kernel, kTensorMaps, maps);
    if (!of_peers.empty()) kernel = WithAttr(kernel, kPeerMaps, of_peers);
    const std::unordered_set<const Object*> written = Written(described);
    kernel = WithAttr(kernel, kTmaWritten, WrittenByMaps(written, collector, params));
    if (is_text) {
      kernel = WithAttr(kernel, kSource, String(ToString(uses.source->args[1])));
    } else {
      kernel = WithAttr(kernel, kWritten, NamesOfParams(written));
      kernel = WithAttr(kernel, kTouched, NamesOfParams(OfFunction(AlwaysTouched(described))));
    }
    kernels_.push_back(WithSharedBytes(kernel, uses));
  }

  /*! With its dynamic shared memory and, where the launch decides it, how much it may be. */
  PrimFunc WithSharedBytes(const PrimFunc& kernel, const KernelUses& uses) const {
    if (const auto bytes = AsInt(uses.shared_bytes)) {
      return WithAttr(kernel, kDynSharedBytes, *bytes);
    }
    const int64_t limit = TargetOf(function_).limits.shared_bytes_per_block - uses.static_bytes;
    return WithAttr(WithAttr(kernel, kDynSharedBytes, uses.shared_bytes), kDynSharedLimit, limit);
  }

  /*! What a kernel, with its maps in place, may write: parameters of the function, and more. */
  std::unordered_set<const Object*> Written(const Stmt& described) const {
    return OfFunction(WrittenBuffers(described));
  }

  std::unordered_set<const Object*> OfFunction(
      const std::unordered_set<const Object*>& buffers) const {
    std::unordered_set<const Object*> found;
    for (const Object* v : buffers) {
      found.insert(OfFunction(GetRef<Var>(static_cast<const VarNode*>(v))).get());
    }
    return found;
  }

  Array<String> NamesOfParams(const std::unordered_set<const Object*>& some) const {
    Array<String> names;
    for (const Var& p : function_->params) {
      if (some.count(p.get())) names.push_back(p->name);
    }
    return names;
  }

  /*! The parameters of a kernel that it has maps of and writes. */
  Array<Var> WrittenByMaps(const std::unordered_set<const Object*>& written,
                           const MapCollector& collector, const Array<Var>& params) const {
    std::unordered_set<const Object*> mapped;
    for (const MapCollector::Map& map : collector.maps) {
      const Var tensor = TensorOf(TensorMapSpec::FromCall(map.call.get()));
      mapped.insert(OfFunction(tensor).get());
    }
    Array<Var> out;
    for (const Var& p : params) {
      const Object* of = OfFunction(p).get();
      if (mapped.count(of) && written.count(of)) out.push_back(p);
    }
    return out;
  }

  /*! The function's parameter that a kernel's one is. */
  Var OfFunction(const Var& p) const {
    auto view = view_of_.find(p.get());
    return view == view_of_.end() ? p : view->second;
  }

  /*! The description of a tensor map with the parameter in the place of the address. */
  Expr OfFunction(const MapCollector::Map& map) const {
    TensorMapSpec spec = TensorMapSpec::FromCall(map.call.get());
    const Var tensor = OfFunction(TensorOf(spec));
    const auto is_tensor = [&](const Var& p) { return p.same_as(tensor); };
    if (!AnyOf(function_->params, is_tensor)) {
      ThrowAt(map.span, "ValueError",
              "found a copy by TMA of " + std::string(tensor->name) +
                  ", which is no parameter of the function, wanted one, since the host describes "
                  "the tensor; use T.copy with disable_tma=True");
    }
    spec.pointer = tensor;
    return spec.ToCall();
  }

  Array<Any> L2Window(const AttrStmtNode* attr) const {
    const auto name = attr->node.cast<String>();
    for (const Var& p : function_->params) {
      if (p->name == name && AsBuffer(p)) return {name, attr->value};
    }
    ThrowAt(attr->span, "ValueError",
            "found T.annotate_l2_hit_ratio for " + name +
                ", wanted a tensor that the function takes, whose place and size the launch knows; "
                "declare it as a parameter");
  }

  /*! Buffers, scalars, then the symbols of shapes and strides as they appear. */
  Array<Var> AllOfFunction() const {
    Array<Var> out, scalars;
    std::unordered_set<const Object*> taken;
    for (const Var& p : function_->params) {
      taken.insert(p.get());
      (AsBuffer(p) ? out : scalars).push_back(p);
    }
    for (const Var& p : scalars) out.push_back(p);
    for (const Var& p : function_->params) {
      if (!AsBuffer(p)) continue;
      for (const Var& v : SizeSymbolsOf(p)) {
        if (taken.insert(v.get()).second) out.push_back(v);
      }
    }
    return out;
  }

  Array<Var> Params(const std::vector<Var>& free, const MapCollector& collector) {
    Array<Var> buffers, scalars, symbols;
    auto used = [&free](const Var& v) {
      return FindIf(free, [&v](const Var& f) { return f.same_as(v); }) != free.end();
    };
    std::unordered_set<const Object*> taken;
    for (const MapCollector::Map& map : collector.maps) taken.insert(map.param.get());
    for (const Var& p : function_->params) {
      auto view = view_.find(p.get());
      const Var inside = view == view_.end() ? p : view->second;
      if (!used(inside)) continue;
      taken.insert(inside.get());
      (AsBuffer(inside) ? buffers : scalars).push_back(inside);
    }
    for (const Var& v : free) {
      if (!taken.count(v.get())) symbols.push_back(v);
    }
    for (const Var& v : scalars) buffers.push_back(v);
    for (const Var& v : symbols) buffers.push_back(v);
    return buffers;
  }

  PrimFunc function_;
  std::string name_;
  std::vector<Stmt> launches_;
  std::vector<PrimFunc> kernels_;
  std::unordered_set<std::string> kernel_names_;
  std::unordered_map<const Object*, Var> view_of_;
  std::unordered_map<const Object*, Var> view_;
  Substituter host_values_;
};

Array<PrimFunc> SplitHostDevice(const PrimFunc& f) { return Splitter(f).Run(); }

Registration split_host_device_registration([] {
  RegisterOp(kLaunch, kLaunch, CallEffect::kOpaque);
  RegisterOp(kSourceKernel, kSourceKernel, CallEffect::kOpaque);
  RegisterFunction("SplitHostDevice", SplitHostDevice);
});

}  // namespace
}  // namespace tl
