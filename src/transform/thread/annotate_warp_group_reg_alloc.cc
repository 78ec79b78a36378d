/*!
 * AnnotateWarpGroupRegAlloc: registers of warp groups that copy go to those that compute.
 *
 * In:  a thread program with its barriers and ranges of threads (`tl.thread_range`). Warp
 * specialisation has marked some ranges as `tl.warp_role`, roles of a schedule with their registers
 * as `tl.scheduled_role`. The program may give numbers of registers (`tl.producer_registers`,
 * `tl.consumer_registers`, `tl.no_set_max_nreg`).
 * Out: none of these attributes. The roles of a schedule begin with their `setmaxnreg`. In a
 * kernel for sm_90a that has producers and consumers, each of their bodies begins with
 * `tl.warpgroup_reg_dealloc` or `tl.warpgroup_reg_alloc`. `tl.min_blocks_per_sm` is the number of
 * blocks that share a multiprocessor's registers, if it is more than one.
 * Establishes: all threads of a block together have at most the registers of a block, so that no
 * warp group waits for registers for ever. The number of blocks is the largest that shared memory
 * has room for and that leaves consumers the registers of their buffers and kManyOtherRegisters
 * more, or with wgmma kFewOtherRegisters: one block's loads and epilogue then run beside the MMAs
 * of another one. Where ptxas spills with so few, the program is compiled again with
 * kManyOtherRegisters (tilelang/jit/second_choice.py). Left alone: kernels with so many warp groups
 * that no registers are left to move, and those whose producers move data themselves, which takes
 * registers, and are no fewer than the consumers (MovesRegisters), unless the program gives
 * numbers. T.annotate_min_blocks_per_sm is limited to the blocks that a multiprocessor has room
 * for, with a warning. ptxas ignores a number that asks for more threads than a multiprocessor has.
 * Beyond what shared memory has room for, fewer registers do not admit more blocks. A kernel that
 * may begin beside another one (T.pdl_sync) leaves a quarter of the registers to that one's blocks,
 * if its buffers have room in the others: else it only begins where those have ended
 * (`tl.bound_threads`). Within the limit, a role always has registers left. Refuses (ValueError):
 * numbers of the program that need more registers than there are, those of T.set_max_nreg among
 * them, for which a warp group would wait for ever (held_registers.h). Warns of numbers without an
 * effect.
 */
#include <algorithm>

#include "../../analysis/kernel_facts.h"
#include "../../analysis/shared_memory.h"
#include "../../op/intrinsics.h"
#include "../../op/launch_sized.h"
#include "../../op/thread_range.h"
#include "../../op/wgmma_calls.h"
#include "../../target/mma.h"
#include "../../target/registers.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "held_registers.h"

namespace tl {
namespace {

/*! The ranges of one role. */
struct Role {
  std::vector<ThreadRange> ranges;
  bool moves_data = false;
  Span span;

  void Add(const ThreadRange& r) {
    if (std::find(ranges.begin(), ranges.end(), r) == ranges.end()) ranges.push_back(r);
  }
  int64_t Threads() const {
    int64_t n = 0;
    for (const ThreadRange& r : ranges) n += r.threads;
    return n;
  }
  int64_t Groups() const { return Threads() / kWarpGroupThreads; }
};

/*! A role of T.annotate_ws_schedule. */
struct ScheduledRole {
  std::string name;
  ThreadRange range;
  int64_t registers;
};

/*! What a program says of registers, with its place. */
struct Hint {
  int64_t registers;
  Span span;
};

/*! Roles and hints of one kernel. */
class KernelReader : public StmtExprVisitor {
 public:
  Role producer, consumer;
  std::optional<Hint> producer_hint, consumer_hint;
  bool stays = false;
  /*! Those of a schedule; 0 registers for a role that keeps what it has. */
  std::vector<ScheduledRole> scheduled;
  std::optional<int64_t> min_blocks;  // the program's
  Span min_blocks_span;
  int64_t threads = 1;
  int64_t local_bits = 0;    // in buffers of a thread
  int64_t accumulators = 0;  // registers of the wgmma that has most
  int64_t dynamic_bytes = 0, static_bytes = 0;
  bool sized_at_launch = false;  // and bytes that only the launch knows
  bool waits_for_kernel = false;

  int64_t SharedBytes() const { return dynamic_bytes + static_bytes; }
  int64_t OfProducer() const { return producer.moves_data ? kRegistersOfCopies : kLeastRegisters; }
  int64_t OfRoles() const { return producer.Threads() + consumer.Threads(); }

 protected:
  void Visit_(const AttrStmtNode* op) final {
    const std::string key = op->attr_key;
    if (key == kProducerRegisters) producer_hint = Hint{ToInt(op->value), op->span};
    if (key == kConsumerRegisters) consumer_hint = Hint{ToInt(op->value), op->span};
    if (key == kMinBlocks) {
      min_blocks = ToInt(op->value);
      min_blocks_span = op->span;
    }
    if (key == kThreadExtent) {
      const std::string tag = op->node.cast<IterVar>()->thread_tag;
      if (tag.rfind("threadIdx", 0) == 0) threads *= AsInt(op->value).value_or(1);
    }
    stays |= key == kNoSetMaxNReg;
    const ThreadRange outside = range_;
    Role* const around = role_;
    if (key == kThreadRange) range_ = ThreadRangesOf(op)[0];
    if (key == kScheduledRole) {
      scheduled.push_back({std::string(op->node.cast<String>()), range_, ToInt(op->value)});
    }
    if (key == kWarpRole) {
      role_ = op->node.cast<String>() == "producer" ? &producer : &consumer;
      role_->Add(range_);
      role_->span = op->span;
    }
    Visit(op->body);
    range_ = outside;
    role_ = around;
  }
  void Visit_(const BufferStoreNode* op) final {
    // A scalar that counts is no data, nor the number of a tile.
    const bool is_number = ScopeOf(op->buffer) == "local.var" || IsCallTo(op->value, kFetchInc);
    if (role_ && !is_number) role_->moves_data = true;
    Default(op);
  }
  void Visit_(const AllocBufferNode* op) final {
    if (IsSizedAtLaunch(op->buffer)) {
      sized_at_launch = true;
    } else if (const auto offset = IntAnnotation(op->annotations, kSharedOffset)) {
      dynamic_bytes = std::max(dynamic_bytes, *offset + tl::SharedBytes(op));
    } else if (IsShared(op->buffer)) {
      static_bytes += tl::SharedBytes(op);
    } else {
      local_bits += 8 * tl::SharedBytes(op);
    }
  }
  void Visit_(const CallNode* op) final {
    waits_for_kernel |= IsCallTo(op, kPdlSync);
    if (IsWgmma(op)) accumulators = std::max(accumulators, AccumulatorRegisters(op));
    for (const PointerAccess& p : PointerAccesses(op)) {
      if (role_ && p.access == Access::kAsyncWrite) role_->moves_data = true;
    }
    Default(op);
  }

 private:
  ThreadRange range_;
  Role* role_ = nullptr;
};

/*! Registers of a thread of each role, the blocks that a multiprocessor has them for, and the
 * threads that a block seems to have to ptxas. */
struct Registers {
  int64_t producer, consumer, blocks;
  std::optional<int64_t> bound_threads = std::nullopt;
};

[[noreturn]] void RefuseHint(const Hint& hint, const char* role, const KernelReader& k, int64_t all,
                             int64_t most) {
  ThrowAt(
      hint.span, "ValueError",
      "found " + std::to_string(hint.registers) + " registers for each thread of the " + role +
          "s, with " + std::to_string(k.producer.Threads()) + " threads that copy and " +
          std::to_string(k.consumer.Threads()) + " that compute, wanted at most " +
          std::to_string(all) + " registers for all threads: " +
          (most < kLeastRegisters ? "fewer threads" : "at most " + std::to_string(most) + " here"));
}

/*! Lowers the program's number of blocks to what there is room for. */
void LowerMinBlocks(KernelReader* k, const Target& target) {
  if (!k->min_blocks) return;
  const int64_t most = target.BlocksThatFit(k->threads, k->SharedBytes());
  if (*k->min_blocks <= most) return;
  LogAt(LogLevel::kWarning, k->min_blocks_span,
        "T.annotate_min_blocks_per_sm found " + std::to_string(*k->min_blocks) + " blocks of " +
            std::to_string(k->threads) + " threads and " + std::to_string(k->SharedBytes()) +
            " bytes of shared memory, wanted at most the " + std::to_string(most) +
            " that a multiprocessor of " + target.arch +
            " has room for, which is what is asked for; write " + std::to_string(most));
  k->min_blocks = most;
}

/*! How many blocks share a multiprocessor: the program's number, or what shared memory and the
 * registers of consumers allow. */
int64_t BlocksOf(const KernelReader& k, const Target& target) {
  if (k.min_blocks) return *k.min_blocks;
  if (k.producer_hint || k.consumer_hint || k.sized_at_launch) return 1;
  const bool few = k.accumulators && !PassConfigFlag("tl.second_choice.fewer_blocks", false);
  const int64_t wanted =
      (k.local_bits + 31) / 32 + (few ? kFewOtherRegisters : kManyOtherRegisters);
  return BlocksWithRegisters(
      {k.producer.Threads(), k.consumer.Threads(), k.OfProducer(), wanted, k.accumulators},
      std::min(kMostBlocksWithRoles, target.BlocksThatFit(k.OfRoles(), k.SharedBytes())));
}

/*! Leaves a quarter of the registers to blocks of the kernel in front of this one. */
void LeaveRegisters(const KernelReader& k, Registers* r) {
  if (!k.waits_for_kernel || r->blocks > 1 || k.producer_hint || k.consumer_hint) return;
  // __launch_bounds__ counts warps of 32.
  const int64_t bound = (4 * k.OfRoles() / 3 + 31) / 32 * 32;
  const int64_t start = RegistersOfThreadAtStart(bound, 1);
  const int64_t consumer = MostRegistersBeside(k.producer.Threads() * r->producer,
                                               k.consumer.Threads(), start * k.OfRoles());
  const int64_t wanted = (k.local_bits + 31) / 32 + kManyOtherRegisters;
  if (consumer < wanted || start < k.accumulators + kBesideAccumulators) return;
  r->consumer = consumer;
  r->bound_threads = bound;
}

std::optional<Registers> Choose(const KernelReader& k, const Target& target) {
  const int64_t copying = k.producer.Threads(), computing = k.consumer.Threads();
  if (!k.producer_hint && !k.consumer_hint) {
    const int64_t from = k.producer.Groups(), to = k.consumer.Groups();
    if (!MovesRegisters(from, to, false)) {
      LogAt(LogLevel::kWarning, k.consumer.span,
            "registers stay as they are: found " + std::to_string(from) +
                " warp groups that copy and " + std::to_string(to) +
                " that compute, which leave none to move");
    }
    if (!MovesRegisters(from, to, k.producer.moves_data)) return std::nullopt;
  }
  Registers r;
  r.blocks = BlocksOf(k, target);
  const int64_t all = RegistersAtStart(k.OfRoles(), r.blocks);
  // With the program's number of blocks, they may begin with fewer than they want.
  r.producer =
      k.producer_hint ? k.producer_hint->registers : std::min(k.OfProducer(), all / k.OfRoles());
  r.consumer = k.consumer_hint ? k.consumer_hint->registers
                               : MostRegistersBeside(copying * r.producer, computing, all);
  if (r.consumer >= kLeastRegisters && copying * r.producer + computing * r.consumer <= all) {
    LeaveRegisters(k, &r);
    return r;
  }
  if (k.consumer_hint) {
    RefuseHint(*k.consumer_hint, "consumer", k, all,
               MostRegistersBeside(copying * r.producer, computing, all));
  }
  if (!k.producer_hint) {
    ThrowBug(k.consumer.span, "AnnotateWarpGroupRegAlloc",
             "no registers for " + std::to_string(r.blocks) + " blocks of " +
                 std::to_string(k.OfRoles()) + " threads");
  }
  RefuseHint(*k.producer_hint, "producer", k, all,
             MostRegistersBeside(computing * kLeastRegisters, copying, all));
}

/*! Registers that a block's threads begin with, if a schedule changes them; checks that all roles
 * have theirs. Then every role says its number, also one that keeps what it has: where one does
 * not, ptxas ignores what the others say (C7507). */
std::optional<int64_t> StartOf(const KernelReader& k, const Span& span, const Target& target) {
  const auto sets = [](const ScheduledRole& role) { return role.registers != 0; };
  if (NoneOf(k.scheduled, sets)) return std::nullopt;
  if (!target.Has(Feature::kSetMaxNReg) || k.stays) {
    LogAt(LogLevel::kWarning, span,
          std::string("max_nreg of T.WSRole has no effect: ") +
              (k.stays ? "T.no_set_max_nreg() lets threads keep what they have"
                       : "the target moves no registers between warp groups") +
              "; leave it out");
    return std::nullopt;
  }
  const int64_t blocks = k.min_blocks.value_or(1);
  const int64_t all = RegistersAtStart(k.threads, blocks);
  const int64_t start = RegistersOfThreadAtStart(k.threads, blocks);
  int64_t wanted = k.threads * start;
  bool moves = false;
  std::string found;
  for (const ScheduledRole& role : k.scheduled) {
    const int64_t each = role.registers ? role.registers : start;
    wanted += role.range.threads * (each - start);
    moves |= each != start;
    found += (found.empty() ? "" : ", ") + std::to_string(each) + " for each of " +
             std::to_string(role.range.threads) + " threads of '" + role.name + "'";
  }
  if (!moves) return std::nullopt;
  if (wanted <= all) return start;
  ThrowAt(span, "ValueError",
          "found " + found + ", " + std::to_string(wanted) +
              " registers with those of idle warps, "
              "wanted at most " +
              std::to_string(all) + " for the " + std::to_string(k.threads) +
              " threads of a block; lower max_nreg of a role");
}

/*! Removes the attributes, and sets the registers of roles. */
class Annotator : public StmtExprMutator {
 public:
  Annotator(const std::optional<Registers>& registers, const std::optional<int64_t>& start,
            const std::optional<int64_t>& min_blocks)
      : registers_(registers), start_(start), min_blocks_(min_blocks) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    const std::string key = op->attr_key;
    if (key == kMinBlocks) return MakeAttr(op->node, key, MakeInt(*min_blocks_), Mutate(op->body));
    const bool ours = key == kThreadRange || key == kWarpRole || key == kScheduledRole ||
                      key == kProducerRegisters || key == kConsumerRegisters ||
                      key == kNoSetMaxNReg;
    if (!ours) return Default<Stmt>(op);
    const Stmt body = Mutate(op->body);
    if (key == kScheduledRole && start_) {
      const int64_t asked = ToInt(op->value);
      return Set(asked ? asked : std::min(*start_, kMostRegisters), *start_, op->span, body);
    }
    if (key != kWarpRole || !registers_) return body;
    const bool producer = op->node.cast<String>() == "producer";
    const int64_t n = producer ? registers_->producer : registers_->consumer;
    const Expr call = CallOp(producer ? kRegDealloc : kRegAlloc, {MakeInt(n)});
    return MakeSeq({MakeEvaluate(call, op->span), body});
  }

 private:
  static Stmt Set(int64_t registers, int64_t start, const Span& span, const Stmt& body) {
    const char* op = registers <= start ? kRegDealloc : kRegAlloc;
    return MakeSeq({MakeEvaluate(CallOp(op, {MakeInt(registers)}), span), body});
  }
  std::optional<Registers> registers_;
  std::optional<int64_t> start_;
  std::optional<int64_t> min_blocks_;
};

void WarnOfHints(const KernelReader& k, const std::string& why) {
  for (const auto* hint : {&k.producer_hint, &k.consumer_hint}) {
    if (!*hint) continue;
    LogAt(LogLevel::kWarning, (*hint)->span,
          "the number of registers has no effect: " + why + "; leave it out");
  }
}

/*! The body of a launch, changed. */
template <typename Change>
Stmt Inside(const Stmt& s, const Change& change) {
  const auto* op = s.as<AttrStmtNode>();
  if (!op || op->attr_key != kThreadExtent) return change(s);
  return With(op, &AttrStmtNode::body, Inside(op->body, change));
}

Stmt Annotate(const Stmt& kernel, const Target& target) {
  KernelReader k;
  k(kernel);
  LowerMinBlocks(&k, target);
  const std::optional<int64_t> start = StartOf(k, kernel->span, target);
  std::optional<Registers> registers;
  if (k.producer.ranges.empty() || k.consumer.ranges.empty()) {
    WarnOfHints(k, "the compiler gives the kernel no producers and consumers");
  } else if (!target.Has(Feature::kSetMaxNReg)) {
    WarnOfHints(k, "the target moves no registers between warp groups");
  } else if (k.stays) {
    WarnOfHints(k, "T.no_set_max_nreg() lets threads keep what they have");
  } else {
    registers = Choose(k, target);
  }
  const Stmt launch = Annotator(registers, start, k.min_blocks).Mutate(kernel);
  const int64_t blocks = k.min_blocks.value_or(registers ? registers->blocks : 1);
  const auto bound = registers ? registers->bound_threads : std::nullopt;
  if (target.Has(Feature::kSetMaxNReg)) {
    RefuseEndlessWaits(launch, RegistersOfThreadAtStart(bound.value_or(k.threads), blocks));
  }
  if (bound) {
    return Inside(launch, [&](const Stmt& body) {
      return MakeAttr(MakeInt(0), kBoundThreads, MakeInt(*bound), body);
    });
  }
  if (!registers || registers->blocks == 1 || k.min_blocks) return launch;
  return Inside(launch, [&](const Stmt& body) {
    return MakeAttr(MakeInt(0), kMinBlocks, MakeInt(registers->blocks), body);
  });
}

PrimFunc AnnotateWarpGroupRegAlloc(PrimFunc f) {
  return ForEachKernel(f, [&target = TargetOf(f)](const AttrStmtNode* op) {
    return Annotate(GetRef<Stmt>(op), target);
  });
}

TL_REGISTER_PASS(AnnotateWarpGroupRegAlloc);

}  // namespace
}  // namespace tl
