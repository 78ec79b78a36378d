/*!
 * SeparateProducts: products of warp groups that ptxas would take for each other are apart.
 *
 * In:  a flat thread program. Behind it no pass makes, changes or copies products.
 * Out: the same. In front of a product that begins anew in accumulators that were read before and
 *      are read again, `tl.warpgroup_arrive` is `tl.warpgroup_arrive_apart`, which ends a basic
 *      block.
 * Establishes: in no basic block are accumulators read, replaced and read.
 * Refuses nothing.
 *
 * ptxas of CUDA 13.0 to 13.5 does not see that a product that begins anew changes its accumulators:
 * an expression of them, such as their conversion to 16 bits, has the value that it had in front of
 * the product in the same basic block, and the product before, or this one, is deleted. Results are
 * wrong without a word. tilelang/testing/sass.py finds deleted products.
 *
 * A branch between products may make ptxas await each of them (C7512), so there is none where
 * nothing needs it. A basic block ends at the latest with an iteration of a loop of which there are
 * no copies, and at a wait for an mbarrier, which is a loop. Branches may become predicates, and
 * are taken for no end of one.
 */
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "../../op/intrinsics.h"
#include "../../op/wgmma_calls.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

bool IsZero(const Expr& e) {
  if (const auto* vector = e.as<BroadcastNode>()) return IsZero(vector->value);
  if (const auto* number = e.as<FloatImmNode>()) return number->value == 0;
  return IsConst(e, 0);
}

/*! Finds the statements in front of which a basic block has to end: arrivals, or else products. */
class PlaceFinder : public StmtExprVisitor {
 public:
  explicit PlaceFinder(const Stmt& kernel) {
    Visit(kernel);
    Close();
  }
  std::unordered_set<const EvaluateNode*> places;

 protected:
  void Visit_(const ForNode* op) final {
    const std::optional<int64_t> extent = AsInt(op->extent);
    std::optional<int64_t> factor = IntAnnotation(op->annotations, kUnrollFactor);
    if (!factor) factor = std::exchange(unroll_factor_, std::nullopt);
    if (extent && *extent <= 1) return Default(op);
    if (factor ? *factor > 1 : op->kind == ForKind::kUnrolled) return VisitCopies(op);
    InIteration([&] { Default(op); });
  }
  /*! Notes the unrolling of the next loop, as KernelPrinter prints it. */
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kUnrollFactor) unroll_factor_ = AsInt(op->value);
    Default(op);
  }
  void Visit_(const WhileNode* op) final {
    InIteration([&] { Default(op); });
  }

  void Visit_(const EvaluateNode* op) final {
    statement_ = op;
    if (IsCallTo(op->value, kWarpgroupArrive)) block_.arrival = {op, Next()};
    Default(op);
  }

  void Visit_(const CallNode* op) final {
    if (IsCallTo(op, kWarpgroupFence)) return;
    const Expr call = GetRef<Expr>(op);
    const bool waits = IsCallTo(call, kMbarrierWait) || IsCallTo(call, kMbarrierWaitCluster);
    if (waits && !block_.in_copies) {
      Close();
      block_ = Block();
    }
    if (!IsWgmma(op)) return Default(op);
    const Intrinsic* row = FindIntrinsic(op);
    const int first = row->template_args;
    const Expr sum = op->args[first + row->access.size() - 1];
    for (int i = first + 1; i < static_cast<int>(op->args.size()); ++i) Visit(op->args[i]);
    const VarNode* accumulators = Whole(AsAddressOf(op->args[first])->source.as<VarNode>());
    // Zeros that are set in front of a product that adds are a beginning, too; between copies of
    // it they may be set behind it.
    const bool begins = !IsConst(sum, 1) || block_.zeros.count(accumulators) || block_.in_copies;
    block_.zeros.erase(accumulators);
    if (!begins) return;
    // What is read behind the arrival is not read in front of a basic block that begins there.
    const std::vector<int64_t>& reads = block_.reads[accumulators];
    const bool is_behind = !reads.empty() && reads.back() > block_.arrival.position;
    const EvaluateNode* place =
        block_.arrival.statement && !is_behind ? block_.arrival.statement : statement_;
    const int64_t here = Next();
    block_.products.push_back({place, accumulators, here, here});
  }

  void Visit_(const BufferStoreNode* op) final {
    for (const Expr& index : op->indices) Visit(index);
    Visit(op->value);
    if (IsZero(op->value)) block_.zeros.insert(Whole(op->buffer.get()));
  }
  void Visit_(const VarNode* op) final {
    if (AsBuffer(GetRef<Var>(op))) block_.reads[Whole(op)].push_back(Next());
  }
  void Visit_(const AllocBufferNode*) final {}
  void Visit_(const DeclBufferNode* op) final {
    for (const Var& viewed : VarsOf(op->data)) {
      if (AsBuffer(viewed)) wholes_[op->buffer.get()] = Whole(viewed.get());
    }
  }

 private:
  struct Product {
    const EvaluateNode* place;
    const VarNode* accumulators;
    /*! Places of its first and last copy. What is read between them is read on both sides. */
    int64_t first, last;
  };
  struct Arrival {
    const EvaluateNode* statement = nullptr;
    int64_t position = 0;
  };
  /*! What may be one basic block of ptxas: an iteration, without those of loops in it. */
  struct Block {
    std::vector<Product> products;
    std::unordered_map<const VarNode*, std::vector<int64_t>> reads;
    std::unordered_set<const VarNode*> zeros;
    Arrival arrival;
    bool in_copies = false;
  };

  int64_t Next() { return ++position_; }

  const VarNode* Whole(const VarNode* buffer) const {
    const auto it = wholes_.find(buffer);
    return it == wholes_.end() ? buffer : it->second;
  }

  void VisitCopies(const ForNode* op) {
    if (block_.in_copies) return Default(op);
    const size_t before = block_.products.size();
    const int64_t first = Next();
    block_.in_copies = true;
    Default(op);
    block_.in_copies = false;
    const int64_t last = Next();
    for (size_t i = before; i < block_.products.size(); ++i) {
      block_.products[i].first = first;
      block_.products[i].last = last;
    }
  }

  template <typename F>
  void InIteration(F visit) {
    Block around;
    std::swap(around, block_);
    visit();
    Close();
    std::swap(around, block_);
    // To the block around, which may have the first iteration, a loop is a read and a store.
    for (const auto& [buffer, reads] : around.reads) {
      std::vector<int64_t>& all = block_.reads[buffer];
      AppendRange(&all, reads);
    }
    block_.zeros.insert(around.zeros.begin(), around.zeros.end());
  }

  void Close() {
    for (const Product& product : block_.products) {
      const std::vector<int64_t>& reads = block_.reads[product.accumulators];
      auto any = [&](auto is) { return AnyOf(reads, is); };
      if (any([&](int64_t at) { return at < product.last; }) &&
          any([&](int64_t at) { return at > product.first; })) {
        places.insert(product.place);
      }
    }
  }

  Block block_;
  const EvaluateNode* statement_ = nullptr;
  std::optional<int64_t> unroll_factor_;
  int64_t position_ = 0;
  std::unordered_map<const VarNode*, const VarNode*> wholes_;
};

class Separator : public StmtExprMutator {
 public:
  explicit Separator(const PlaceFinder& found) : found_(found) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    if (!found_.places.count(op)) return GetRef<Stmt>(op);
    const Stmt apart = MakeEvaluate(CallOp(kWarpgroupArriveApart, {}), op->span);
    if (IsCallTo(op->value, kWarpgroupArrive)) return apart;
    return MakeSeq({apart, GetRef<Stmt>(op)});
  }

 private:
  const PlaceFinder& found_;
};

PrimFunc SeparateProducts(PrimFunc f) {
  return WithBody(f, Separator(PlaceFinder(f->body)).Mutate(f->body));
}

TL_REGISTER_PASS(SeparateProducts);

}  // namespace
}  // namespace tl
