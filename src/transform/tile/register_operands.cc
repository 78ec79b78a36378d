/*!
 * RegisterOperands: what threads make or read for one MMA is its operand in registers.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected; products
 *      - with an operand that a loop of the same body makes out of tiles, as kernels with weights
 *        of 4 or 8 bits unpack them: `W_shared[i, j] = cast(packed[i, j // 2]) * scale[i]`;
 *      - whose left operand of 16 bits threads make of accumulators, and whose warps have whole
 *        rows of both: `P_shared[i, j] = exp(S[i, j])` of attention with weights in shared memory;
 *      - of float32 that may be rounded to tf32, with an operand that lies across, as B of a plain
 *        A B: descriptors of wgmma reach those operands of 32 bits alone whose elements along K lie
 *        side by side.
 * Out: the same, where that tile is a fragment, since a wgmma reads its left operand from
 *      registers. One that lies across stays, and is copied to a fragment. Of a right operand the
 *      product is turned, C^T = B^T A^T: the gemm has its operands exchanged and `transpose_C`. Its
 *      warps share the rows of the operand, so that each element is made or read once.
 * Establishes: the elements go from the threads that make them to the tensor cores; through shared
 *      memory they would cost a store, a fence between proxies and a barrier, and the MMAs of all
 *      warp groups would wait for all of them. Operands that lie across would be those of mma.sync,
 *      at half of the speed.
 * A product stays as it is if anything else reads the tile that threads make, names it or gives it
 * a layout; if its elements come from accumulators whose layout is another one, or many of them
 * from global memory, whose vectors a fragment for wgmma would tear, or are as wide as what they
 * are made of; if both operands lie across; if the program gives threads their roles or registers,
 * or statements their order; if the accumulator has other users than copies, fills and loops over
 * elements, or such loops have accumulators of products that stay; if the registers would not hold
 * it. Refuses nothing.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "../../layout/annotation.h"
#include "../../op/call_attrs.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/parallel.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "kernel_scope.h"
#include "pipeline.h"

namespace tl {
namespace {

/*! A statement without statements in it, but for those of a parallel loop. */
struct Leaf {
  Stmt stmt;
  /*! The loop, branch or block whose body it is in. */
  const Object* place;
  int64_t threads;
  /*! The program gives an order to the statements of a loop around it. */
  bool is_scheduled;
  std::unordered_set<const Object*> named;

  const CallNode* Op() const { return AsTileOp(stmt); }
  bool Is(const char* op) const { return Op() && IsCallTo(GetRef<Expr>(Op()), op); }
  /*! It does to each element what it does to the others: a copy, a fill or a parallel loop. */
  bool IsElementwise() const { return Is(kCopy) || Is(kFill) || Is(kAtomic) || stmt.as<ForNode>(); }
};

/*! The leaves of a kernel in order, and what is said of its buffers elsewhere. */
class Leaves : public StmtExprVisitor {
 public:
  explicit Leaves(const Stmt& kernel) : views(kernel) { Visit(kernel); }

  const Views views;
  std::vector<Leaf> all;
  /*! The program says which threads do what, or how many registers they have. */
  bool has_plan = false;
  int64_t min_blocks = 1;
  Map<Var, Layout> annotated;
  /*! By buffer, the leaves that name its memory. */
  std::unordered_map<const Object*, std::vector<size_t>> users;
  /*! Buffers that conditions and extents name. */
  std::unordered_set<const Object*> asked;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    const std::string& key = op->attr_key;
    has_plan |= key == kThreadRange || key == kWsOp || key == kProducerRegisters ||
                key == kConsumerRegisters;
    if (key == kMinBlocks) min_blocks = ToInt(op->value);
    scope_.Within(op, [&] { Default(op); });
  }
  void Visit_(const SBlockNode* op) final {
    has_plan |= op->annotations.count(kWsSchedule) != 0;
    for (auto [buffer, layout] : GetLayoutMap(op->annotations)) annotated.Set(buffer, layout);
    Within(op, op->body);
  }
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) return Add(GetRef<Stmt>(op));
    Ask(op->min);
    Ask(op->extent);
    const bool outside = is_scheduled_;
    is_scheduled_ |= op->annotations.count(kUserOrder) != 0;
    Within(op, op->body);
    is_scheduled_ = outside;
  }
  void Visit_(const WhileNode* op) final {
    Ask(op->condition);
    Within(op, op->body);
  }
  void Visit_(const IfThenElseNode* op) final {
    Ask(op->condition);
    Within(op->then_case.get(), op->then_case);
    if (op->else_case) Within(op->else_case.value().get(), op->else_case.value());
  }
  void Visit_(const DeclBufferNode*) final {}
  void Visit_(const EvaluateNode* op) final { Add(GetRef<Stmt>(op)); }
  void Visit_(const BufferStoreNode* op) final { Add(GetRef<Stmt>(op)); }
  void Visit_(const BindNode* op) final { Add(GetRef<Stmt>(op)); }

 private:
  void Within(const Object* place, const Stmt& body) {
    const Object* outside = std::exchange(place_, place);
    Visit(body);
    place_ = outside;
  }
  void Ask(const Expr& e) {
    for (const Var& v : VarsOf(e)) asked.insert(views.RootOf(v).get());
  }
  void Add(const Stmt& s) {
    Leaf leaf{s, place_, 0, is_scheduled_, {}};
    if (leaf.Op()) leaf.threads = scope_.Threads(s->span).threads;
    for (const Var& v : VarsOf(s)) leaf.named.insert(views.RootOf(v).get());
    for (const Object* buffer : leaf.named) users[buffer].push_back(all.size());
    all.push_back(std::move(leaf));
  }

  KernelScope scope_;
  const Object* place_ = nullptr;
  bool is_scheduled_ = false;
};

bool Has(const std::vector<Var>& buffers, const Var& buffer) {
  return AnyOf(buffers, [&](const Var& v) { return v.same_as(buffer); });
}

/*! A copy to all of the tile. */
bool CopiesTo(const Leaf& leaf, const Var& tile) {
  if (!leaf.Is(kCopy) || !TileOpAttrs(leaf.Op()).empty()) return false;
  const TileRegion dst = TileRegion::From(leaf.Op()->args[1]);
  return dst.buffer.same_as(tile) && dst.IsWhole() &&
         !TileRegion::From(leaf.Op()->args[0]).buffer.same_as(tile);
}

/*! A parallel loop whose iterations find the elements of the tile in their own registers where it
 * is a fragment of this layout. */
bool FindsElements(const Leaf& leaf, const Var& tile, const Var& fragment, const Fragment& layout) {
  const auto* loop = leaf.stmt.as<ForNode>();
  if (!loop || !loop->annotations.empty()) return false;
  const Stmt body = Substitute(leaf.stmt, tile, fragment);
  const ParallelNest nest = NestOfLoop(body.as<ForNode>());
  size_t named = 0, accessed = 0;
  ForEachIn<VarNode>(body, [&](const VarNode* v) { named += v == fragment.get(); });
  std::optional<Fragment> iterations;
  for (const FragmentAccess& access : FragmentAccesses(nest)) {
    if (!access.buffer.same_as(fragment)) continue;
    ++accessed;
    if (!IsIndexedByNest(nest, access)) return false;
    if (!iterations) iterations = LayoutFromFragment(nest, access, layout);
    if (!iterations || !IsCompatible(nest, access, layout, *iterations)) return false;
  }
  return named == accessed;
}

int64_t ElementsOf(const Var& buffer) {
  int64_t elements = 1;
  for (const Expr& extent : BufferOf(buffer)->shape) elements *= AsInt(extent).value_or(0);
  return elements;
}

/*! A product that reads an operand from registers. */
struct Choice {
  const CallNode* call;
  /*! The product with the fragment as its left operand. */
  GemmOp op;
  Var tile;
  int64_t threads;
  /*! The fragment is read from the tile, which stays; else it takes the tile's place. */
  bool is_read = false;
  /*! The layout of the accumulator, and whether that is the one it has without the choice. */
  Fragment layout = {};
  bool is_kept = false;
};

/*! By number of the product among the leaves. */
using Choices = std::map<size_t, Choice>;

/*! Which products of a kernel take which tile. */
class Chooser {
 public:
  Chooser(const Leaves& leaves, const Target& target) : leaves_(leaves), target_(target) {
    for (const Leaf& leaf : leaves.all) {
      if (leaf.Op() && !leaf.IsElementwise()) {
        const BufferUse use = leaves.views.UseOf(leaf.stmt);
        for (const Var& v : use.writes) results_.insert(v.get());
        others_.insert(leaf.named.begin(), leaf.named.end());
      }
    }
  }

  Choices Choose() {
    Choices chosen;
    if (leaves_.has_plan) return chosen;
    for (size_t n = 0; n < leaves_.all.size(); ++n) {
      if (!leaves_.all[n].Is(kGemm)) continue;
      if (auto choice = ChoiceOf(n)) chosen.emplace(n, *choice);
    }
    while (DropOne(&chosen)) {
    }
    return chosen;
  }

 private:
  std::optional<Choice> ChoiceOf(size_t n) const {
    const Leaf& leaf = leaves_.all[n];
    const GemmOp op = ParseGemm(leaf.Op(), leaf.stmt->span);
    if (leaf.is_scheduled || op.asynchronous || !IsShared(op.a.buffer) || !IsShared(op.b.buffer))
      return std::nullopt;
    GemmOp left = op;
    left.policy = GemmWarpPolicy::kFullRow;
    GemmOp turned = left;
    std::swap(turned.a, turned.b);
    turned.trans_a = !op.trans_b;
    turned.trans_b = !op.trans_a;
    turned.trans_c = true;
    if (auto choice = OfAccumulators(n, op)) return choice;
    for (const GemmOp& wanted : {left, turned}) {
      const bool is_made = IsMadeFor(wanted.a, n) && IsUnpacked(wanted.a.buffer) &&
                           !IsMadeByThreads(wanted.b.buffer);
      if (!is_made && !LiesAcross(wanted)) continue;
      Choice choice{leaf.Op(), wanted, wanted.a.buffer, leaf.threads, !is_made};
      choice.op.a.buffer = AsFragment(choice.tile, is_made ? "" : "_read");
      const std::optional<GemmPlan> plan = PlanOf(choice);
      if (!plan) continue;
      if (is_made && !IsMadeInPlace(choice, n, plan->LayoutOfA(choice.op))) continue;
      choice.layout = plan->LayoutOfC(choice.op);
      return choice;
    }
    return std::nullopt;
  }

  /*! Descriptors do not reach the left operand, whose elements along K lie apart, but those of the
   * right one. An element is a register: narrower ones would be put together of several rows. */
  static bool LiesAcross(const GemmOp& op) {
    constexpr int kRegisterBits = 32;
    return op.allow_tf32 && op.StoredType().bits == kRegisterBits && op.trans_a && op.trans_b &&
           op.a.IsWhole() && BufferOf(op.a.buffer)->shape.size() == 2;
  }

  /*! The left operand, which threads make of accumulators whose rows are a warp's, as those of the
   * product are: a thread has what it multiplies. */
  std::optional<Choice> OfAccumulators(size_t n, const GemmOp& op) const {
    const Leaf& leaf = leaves_.all[n];
    const Var& tile = op.a.buffer;
    if (op.trans_a || !IsOnlyFor(op.a, n, [&](const Leaf& l) { return IsOfRows(l, tile); })) {
      return std::nullopt;
    }
    Choice choice{leaf.Op(), op, tile, leaf.threads};
    choice.op.a.buffer = AsFragment(tile, "");
    const std::optional<GemmPlan> plan = PlanOf(choice), before = RowPlan(op, leaf.threads);
    if (!plan || !before || !HasRoomBesideFragments(choice) ||
        !IsMadeInPlace(choice, n, plan->LayoutOfA(choice.op))) {
      return std::nullopt;
    }
    choice.layout = plan->LayoutOfC(choice.op);
    choice.is_kept = true;
    return choice;
  }

  /*! All that the statement makes are elements of accumulators at the same place of a tile, changed
   * or not. Wider and narrower elements would be other threads'. */
  bool IsOfRows(const Leaf& leaf, const Var& tile) const {
    constexpr int kOperandBits = 16;
    if (BitsOf(tile) != kOperandBits || !leaf.IsElementwise()) return false;
    const BufferUse use = leaves_.views.UseOf(leaf.stmt);
    return AnyOf(use.reads, [&](const Var& v) {
      return IsFragment(v) && ElementsOf(v) == ElementsOf(tile) && IsAccumulatorOfRows(v) &&
             StaysInPlace(leaf.stmt, v, tile);
    });
  }

  /*! Elements of one buffer become those at the same indices of the other one. */
  static bool StaysInPlace(const Stmt& s, const Var& from, const Var& to) {
    return !HasNode<BufferStoreNode>(s, [&](const BufferStoreNode* store) {
      return store->buffer.same_as(to) &&
             HasNode<TensorLoadNode>(store->value, [&](const TensorLoadNode* load) {
               return load->source.same_as(from) &&
                      !ffi::StructuralEqual()(load->indices, store->indices);
             });
    });
  }

  bool IsAccumulatorOfRows(const Var& v) const {
    const auto is_product = [&](size_t n) {
      const Leaf& leaf = leaves_.all[n];
      return leaf.Is(kGemm) && ParseGemm(leaf.Op(), leaf.stmt->span).c.buffer.same_as(v);
    };
    const std::vector<size_t>& users = leaves_.users.at(v.get());
    return AnyOf(users, is_product) && AllOf(users, [&](size_t n) {
             const Leaf& leaf = leaves_.all[n];
             return !is_product(n) ||
                    RowPlan(ParseGemm(leaf.Op(), leaf.stmt->span), leaf.threads).has_value();
           });
  }

  /*! The plan of a product by wgmma whose warps have whole rows. */
  std::optional<GemmPlan> RowPlan(const GemmOp& op, int64_t threads) const {
    const GemmPlan plan = PlanGemm(op, {threads, &target_, Layout(), Layout()});
    return plan.UsesWgmma() && plan.warps.n_warps == 1 ? std::optional(plan) : std::nullopt;
  }

  /*! Statements of the gemm's body in front of it, for which `makes` holds, make the operand, which
   * nothing else names. */
  template <typename Makes>
  bool IsOnlyFor(const TileRegion& operand, size_t gemm, Makes makes) const {
    const Var& tile = operand.buffer;
    if (!operand.IsWhole() || BufferOf(tile)->shape.size() != 2 || IsNamedApart(tile)) return false;
    const std::vector<size_t>& users = leaves_.users.at(tile.get());
    if (users.size() < 2 || users.back() != gemm) return false;
    return AllOf(users, [&](size_t n) {
      const Leaf& leaf = leaves_.all[n];
      return n == gemm || (leaf.place == leaves_.all[gemm].place && makes(leaf));
    });
  }

  /*! Loops and copies make the tile for the gemm alone. */
  bool IsMadeFor(const TileRegion& operand, size_t gemm) const {
    const Var& tile = operand.buffer;
    return IsOnlyFor(operand, gemm, [&](const Leaf& l) { return IsMadeOfTiles(l, tile); });
  }

  /*! Elements of the tile are made of narrower ones. */
  bool IsUnpacked(const Var& tile) const {
    std::vector<const Object*> open{tile.get()};
    std::unordered_set<const Object*> seen{tile.get()};
    const int bits = BitsOf(tile);
    while (!open.empty()) {
      const Object* made = open.back();
      open.pop_back();
      for (size_t n : leaves_.users.at(made)) {
        const BufferUse use = leaves_.views.UseOf(leaves_.all[n].stmt);
        if (!Has(use.writes, GetRef<Var>(static_cast<const VarNode*>(made)))) continue;
        for (const Var& v : use.reads) {
          if (BitsOf(v) < bits) return true;
          if (IsFragment(v) && seen.insert(v.get()).second) open.push_back(v.get());
        }
      }
    }
    return false;
  }
  static int BitsOf(const Var& buffer) { return DTypeOf(buffer).bits; }

  /*! Each thread makes what it multiplies. */
  bool IsMadeInPlace(const Choice& choice, size_t gemm, const Fragment& layout) const {
    const std::vector<size_t>& users = leaves_.users.at(choice.tile.get());
    return AllOf(users, [&](size_t n) {
      const Leaf& leaf = leaves_.all[n];
      return n == gemm || CopiesTo(leaf, choice.tile) ||
             FindsElements(leaf, choice.tile, choice.op.a.buffer, layout);
    });
  }

  /*! It has a view, a layout, or a condition asks for it. */
  bool IsNamedApart(const Var& tile) const {
    return leaves_.asked.count(tile.get()) != 0 || leaves_.annotated.count(tile) != 0 ||
           AnyOf(leaves_.views.all,
                 [&](const Var& v) { return leaves_.views.IsSameMemory(v, tile); });
  }

  /*! Threads write it, so that the turned product would have both operands of them. */
  bool IsMadeByThreads(const Var& tile) const {
    const std::vector<size_t>& users = leaves_.users.at(leaves_.views.RootOf(tile).get());
    return AnyOf(users, [&](size_t n) {
      const Leaf& leaf = leaves_.all[n];
      return leaf.stmt.as<ForNode>() &&
             Has(leaves_.views.UseOf(leaf.stmt).writes, leaves_.views.RootOf(tile));
    });
  }

  /*! What the statement reads is in shared memory, or in fragments that are filled from there. */
  bool IsMadeOfTiles(const Leaf& leaf, const Var& tile) const {
    std::unordered_set<const Object*> seen{tile.get()};
    return IsMadeOfTiles(leaf, ElementsOf(tile), &seen);
  }
  bool IsMadeOfTiles(const Leaf& leaf, int64_t elements,
                     std::unordered_set<const Object*>* seen) const {
    const BufferUse use = leaves_.views.UseOf(leaf.stmt);
    return AllOf(use.reads, [&](const Var& v) {
      if (IsGlobal(v)) return ReadsFew(leaf.stmt, v, elements);
      if (!IsFragment(v) || !seen->insert(v.get()).second) return true;
      if (results_.count(v.get()) || leaves_.annotated.count(v)) return false;
      // Few elements, such as scales, may come from anywhere.
      if (ElementsOf(v) * 8 < elements) return true;
      const std::vector<size_t>& users = leaves_.users.at(v.get());
      return AllOf(users, [&](size_t n) {
        const Leaf& user = leaves_.all[n];
        return !Has(leaves_.views.UseOf(user.stmt).writes, v) ||
               (user.IsElementwise() && IsMadeOfTiles(user, elements, seen));
      });
    });
  }

  /*! Of a tensor, a loop that makes so many elements reads few, such as scales: those that the
   * variables of loops in it choose. A variable of which only quotients are asked chooses few. */
  static bool ReadsFew(const Stmt& s, const Var& tensor, int64_t elements) {
    std::unordered_map<const Object*, int64_t> extents;
    ForEachIn<ForNode>(s, [&](const ForNode* op) {
      extents[op->loop_var.get()] = AsInt(op->extent).value_or(elements);
    });
    bool few = s.as<ForNode>() != nullptr;
    ForEachIn<TensorLoadNode>(s, [&](const TensorLoadNode* load) {
      if (!load->source.same_as(tensor)) return;
      int64_t read = 1;
      for (const auto& [v, extent] : extents) read *= ChosenBy(v, extent, load->indices);
      few &= read * 8 <= elements;
    });
    return few;
  }
  static int64_t ChosenBy(const Object* v, int64_t extent, const Array<Expr>& indices) {
    struct Finder : StmtExprVisitor {
      const Object* v;
      int64_t divisor = 1, least = std::numeric_limits<int64_t>::max();
      void Visit_(const FloorDivNode* op) final {
        const int64_t around = divisor;
        divisor = std::max<int64_t>(divisor, AsInt(op->b).value_or(1));
        Visit(op->a);
        divisor = around;
        Visit(op->b);
      }
      void Visit_(const VarNode* op) final {
        if (op == v) least = std::min(least, divisor);
      }
    } finder;
    finder.v = v;
    for (const Expr& index : indices) finder(index);
    return extent < finder.least ? 1 : (extent + finder.least - 1) / finder.least;
  }

  /*! By a wgmma whose warps share the rows; nullopt if there is none. */
  std::optional<GemmPlan> PlanOf(const Choice& choice) const {
    const GemmOp& op = choice.op;
    const Var& shared = op.b.buffer;
    const Var root = leaves_.views.RootOf(shared);
    if (BitsOf(root) != op.StoredType().bits) return std::nullopt;
    GemmContext context{choice.threads, &target_, Layout(), Layout()};
    for (const auto& [name, layout] : leaves_.annotated) {
      if (!leaves_.views.IsSameMemory(name, shared)) continue;
      context.b =
          name.same_as(shared) ? layout : CarryLayout(layout, name, shared).value_or(Layout());
    }
    const GemmPlan plan = PlanGemm(op, context);
    const bool fits = plan.UsesWgmma() && plan.warps.n_warps == 1 && FitsRegisters(choice);
    return fits ? std::optional(plan) : std::nullopt;
  }

  /*! The accumulator and the operand leave a thread room for what it unpacks, and those of one
   * instruction have room in the registers that a thread begins with. */
  bool FitsRegisters(const Choice& choice) const {
    constexpr int64_t kMost = 240, kOfProducer = 24, kOthers = 48, kOfInstruction = 36, kBits = 32;
    const int64_t all = 65536 / leaves_.min_blocks;
    const GemmOp& op = choice.op;
    const int64_t threads = choice.threads;
    const int64_t most = std::min(kMost, all / threads - kOfProducer * kGroup / threads);
    const int64_t used =
        op.M() * op.N() * op.AccumulatorType().bits + op.M() * op.K() * op.OperandType().bits;
    return used / (kBits * threads) + kOthers <= most &&
           op.N() / 2 + kOfInstruction <= all / (threads + kGroup);
  }

  /*! As FitsRegisters, of an operand that is made while other accumulators are in use. */
  bool HasRoomBesideFragments(const Choice& choice) const {
    constexpr int64_t kMost = 176, kBits = 32;
    int64_t bits = ElementsOf(choice.tile) * BitsOf(choice.tile);
    for (const auto& [name, users] : leaves_.users) {
      const Var v = GetRef<Var>(static_cast<const VarNode*>(name));
      if (IsBuffer(v) && IsFragment(v)) bits += ElementsOf(v) * BitsOf(v);
    }
    return bits <= kMost * kBits * choice.threads;
  }

  static Var AsFragment(const Var& tile, const char* more) {
    const BufferTypeNode* type = BufferOf(tile);
    return MakeBuffer(std::string(tile->name) + more, type->dtype->dtype, type->shape,
                      "local.fragment");
  }

  /*! Leaves out a product whose accumulator would have two layouts; false if there is none. */
  bool DropOne(Choices* chosen) const {
    for (const auto& [n, choice] : *chosen) {
      if (choice.is_kept || KeepsLayout(choice, *chosen)) continue;
      chosen->erase(n);
      return true;
    }
    return false;
  }

  bool KeepsLayout(const Choice& choice, const Choices& chosen) const {
    const Var& c = choice.op.c.buffer;
    if (IsNamedApart(c)) return false;
    const std::vector<size_t>& users = leaves_.users.at(c.get());
    return AllOf(users, [&](size_t n) {
      const Leaf& leaf = leaves_.all[n];
      if (leaf.Op() && IsGemm(leaf.Op())) {
        const auto it = chosen.find(n);
        return it != chosen.end() && it->second.op.c.buffer.same_as(c) &&
               it->second.op.trans_c == choice.op.trans_c;
      }
      if (leaf.stmt.as<ForNode>() && !FindsElements(leaf, c, c, choice.layout)) return false;
      return leaf.IsElementwise() && GoesTogether(leaf, choice, chosen);
    });
  }

  /*! The fragments of a statement have no layouts of others: operands, results of reductions,
   * accumulators of products that are not turned alike. */
  bool GoesTogether(const Leaf& leaf, const Choice& choice, const Choices& chosen) const {
    return AllOf(leaf.named, [&](const Object* named) {
      const Var v = GetRef<Var>(static_cast<const VarNode*>(named));
      if (!leaves_.users.count(named) || !others_.count(named) || !IsBuffer(v) || !IsFragment(v)) {
        return true;
      }
      return AnyOf(chosen, [&](const auto& entry) {
        return entry.second.op.c.buffer.same_as(v) && entry.second.op.trans_c == choice.op.trans_c;
      });
    });
  }

  static constexpr int64_t kGroup = 128;
  static bool IsBuffer(const Var& v) { return v->ty.as<BufferTypeNode>() != nullptr; }

  const Leaves& leaves_;
  const Target& target_;
  /*! What operators that are not elementwise write, and all that they name. */
  std::unordered_set<const Object*> results_, others_;
};

/*! Makes the tiles fragments. */
class Turner : public Substituter {
 public:
  explicit Turner(Choices chosen) : chosen_(std::move(chosen)) {
    for (const auto& [n, choice] : chosen_) {
      if (!choice.is_read) map[choice.tile.get()] = choice.op.a.buffer;
    }
  }

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    Array<Var> buffers = op->alloc_buffers.Map([&](const Var& v) {
      const auto it = map.find(v.get());
      return it == map.end() ? v : it->second.as_or_throw<Var>();
    });
    for (const auto& [n, choice] : chosen_) {
      if (choice.is_read) buffers.push_back(choice.op.a.buffer);
    }
    SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    block.CopyOnWrite()->alloc_buffers = buffers;
    return block;
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const auto it =
        FindIf(chosen_, [&](const auto& entry) { return entry.second.call == op->value.get(); });
    if (it == chosen_.end()) return Default<Stmt>(op);
    const Choice& choice = it->second;
    const Stmt gemm = MakeEvaluate(WithOperands(choice.call, choice.op), op->span);
    if (!choice.is_read) return gemm;
    const std::vector<Stmt> reads = {
        MakeEvaluate(CallOp(kCopy, {TileRegion::Whole(choice.tile).ToExpr(),
                                    TileRegion::Whole(choice.op.a.buffer).ToExpr()}),
                     op->span),
        gemm};
    return MakeSeq(reads);
  }

 private:
  const Choices chosen_;
};

PrimFunc RegisterOperands(PrimFunc f) {
  const Target& target = TargetOf(f);
  if (!target.Has(Feature::kWgmma)) return f;
  return ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    auto chosen = Chooser(Leaves(kernel), target).Choose();
    return chosen.empty() ? kernel : Turner(std::move(chosen)).Mutate(kernel);
  });
}

TL_REGISTER_PASS(RegisterOperands);

}  // namespace
}  // namespace tl
