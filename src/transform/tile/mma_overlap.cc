/*! The schedule of loops of two MMAs, the second of which takes the first one's result from
 * registers (attention): the second one of an iteration runs while the first one of the next and
 * what is made of it do (FlashAttention-3, section 3.2, without its ping-pong). */

#include "../../target/mma.h"
#include "../../target/registers.h"
#include "../../tvm/attrs.h"
#include "pipeline.h"
#include "pipeline_bindings.h"
#include "pipeline_hazards.h"
#include "wgmma_plan.h"

namespace tl {
namespace {

/*! The MMAs of a body: those that share the first accumulators, and the one that follows. */
struct MmaPair {
  size_t first, second;
};

class OverlapPlanner {
 public:
  OverlapPlanner(const KernelInfo& kernel, const Views& views, const WarpRoles& roles)
      : kernel_(kernel), views_(views), roles_(roles), wgmma_(roles) {}

  /*! The loop with order and stage, undefined where it stays as it is. */
  For Schedule(const RoleNode& node) const {
    const ForNode* loop = node.Loop();
    if (!loop || StagesOf(loop) < 2 || loop->annotations.count(kUserOrder)) return For();
    const auto products = FindMmas(node.body);
    if (!products || !HasSlots(node.body)) return For();
    const int64_t registers = FragmentRegisters(node), most = MostRegisters();
    if (registers + kOtherRegisters > most) return For();

    std::vector<int64_t> order(node.body.nodes.size(), -1), stage(order);
    int64_t next = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const RoleNode& n = *node.body.nodes[i];
      if (i == products->second || n.fill != CopyKind::kNothing || n.stmt.as<BindNode>()) continue;
      order[i] = next++;
      stage[i] = 0;
      if (i == products->first) order[products->second] = next++;
    }
    stage[products->second] = 1;
    if (!KeepsOrder(node, order, stage)) return For();
    For scheduled = GetRef<For>(loop);
    auto* notes = &scheduled.CopyOnWrite()->annotations;
    notes->Set(kUserOrder, ToAnnotation(order));
    notes->Set(kUserStage, ToAnnotation(stage));
    notes->Set(kChosen,
               String("products of two iterations at a time, whose tiles take " +
                      std::to_string(registers) + " of " + std::to_string(most) + " registers"));
    return scheduled;
  }

 private:
  std::optional<MmaPair> FindMmas(const RoleSequence& body) const {
    std::vector<size_t> products;
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      if (wgmma_.At(*body.nodes[i])) products.push_back(i);
    }
    if (products.size() < 2) return std::nullopt;
    const MmaPair found{products[products.size() - 2], products.back()};
    const GemmOp second = *wgmma_.At(*body.nodes[found.second]);
    if (!IsFragment(second.a.buffer)) return std::nullopt;
    const Var c = wgmma_.At(*body.nodes[found.first])->c.buffer;
    for (size_t i : products) {
      const bool shares = views_.IsSameMemory(wgmma_.At(*body.nodes[i])->c.buffer, c);
      if (shares == (i == found.second)) return std::nullopt;
    }
    if (!IsMadeOf(body, found, c, second.a.buffer)) return std::nullopt;
    return found;
  }

  /*! Whether the statements between two products make `operand` of `result`. */
  bool IsMadeOf(const RoleSequence& body, const MmaPair& pair, const Var& result,
                const Var& operand) const {
    std::vector<Var> made{views_.RootOf(result)};
    for (size_t i = pair.first + 1; i < pair.second; ++i) {
      const BufferUse use = body.nodes[i]->use;
      const bool follows = AnyOf(use.reads, [&](const Var& v) { return Contains(made, v); });
      if (follows) AppendRange(&made, use.writes);
    }
    return Contains(made, views_.RootOf(operand));
  }

  /*! What the body loads has a slot for each of the two iterations. */
  bool HasSlots(const RoleSequence& body) const {
    return AllOf(roles_.channels, [&](const Channel& c) {
      return c.versions > 1 ||
             NoneOf(c.windows, [&](const Window& w) { return w.sequence == &body; });
    });
  }

  int64_t FragmentRegisters(const RoleNode& node) const {
    int64_t bits = 0;
    std::vector<Var> fragments;
    for (const auto* list : {&node.use.reads, &node.use.writes}) {
      for (const Var& v : *list) {
        if (!IsFragment(v) || Contains(fragments, v)) continue;
        fragments.push_back(v);
        int64_t elements = 1;
        for (const Expr& e : BufferOf(v)->shape) elements *= ToInt(e);
        bits += elements * DTypeOf(v).bits;
      }
    }
    return bits / 32 / kernel_.threads;
  }

  /*! Most registers of a consumer's thread, beside one warp group that copies. */
  int64_t MostRegisters() const {
    return MostRegistersBeside(
        kWarpGroupThreads * kLeastRegisters, kernel_.threads,
        RegistersAtStart(kernel_.threads + kWarpGroupThreads, kernel_.min_blocks));
  }

  /*! One version of everything will do. */
  bool KeepsOrder(const RoleNode& node, const std::vector<int64_t>& order,
                  const std::vector<int64_t>& stage) const {
    std::vector<Stmt> source;
    Pipeline p;
    for (size_t i = 0; i < node.body.nodes.size(); ++i) {
      const RoleNode& n = *node.body.nodes[i];
      if (n.fill != CopyKind::kNothing) continue;
      source.push_back(n.stmt);
      if (n.stmt.as<BindNode>()) continue;
      p.order.push_back(order[i]);
      p.stage.push_back(stage[i]);
    }
    const InlinedBody inlined = InlineBindings(source, views_);
    if (inlined.fixed.defined()) return false;
    p.body = inlined.body;
    for (const Stmt& s : p.body) p.uses.push_back(views_.UseOf(s));
    return NeedsNoVersions(p);
  }

  const KernelInfo& kernel_;
  const Views& views_;
  const WarpRoles& roles_;
  WgmmaPlan wgmma_;
};

}  // namespace

bool OverlapMmas(const KernelInfo& kernel, const Views& views, WarpRoles* roles) {
  const OverlapPlanner planner(kernel, views, *roles);
  bool any = false;
  ForEachNode(roles->body, [&](RoleNode* node) {
    const For scheduled = planner.Schedule(*node);
    if (!scheduled.defined()) return;
    node->stmt = scheduled;
    any = true;
  });
  return any;
}

}  // namespace tl
