#include "pipeline_handshakes.h"

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "pipeline_bindings.h"
#include "pipeline_reads.h"
#include "pipeline_rings.h"
#include "pipeline_roles.h"

namespace tl {
namespace {

using Kind = RoleStep::Kind;

std::string LineText(const Stmt& s) {
  return s->span.defined() ? " at line " + std::to_string(s->span->line) : "";
}

/*! One mbarrier, and what the loop does at it. Waits are for the phase that this iteration
 * completes, or, if `of_phase_before`, for the previous one. */
struct Signal {
  Var barrier;
  int64_t element;
  bool of_phase_before = false;
  bool has_wait = false;
  int64_t arrivals = 0;

  bool IsOf(const RoleStep& s) const {
    return s.kind != Kind::kOther && s.barrier.same_as(barrier) && s.element == element;
  }
  std::string Name() const {
    const bool one = IsConst(BufferOf(barrier)->shape[0], 1);
    return std::string(barrier->name) + (one ? "" : "[" + std::to_string(element) + "]");
  }
};

/*! What an expression is the parity of. The parities `x & 1` and `x % 2` are those of `x`. `x ^ 1`
 * and `1 - x` set `flipped`: they are the parity of the successor of `x`. Casts are left out. */
struct ParityOf {
  Expr integer;
  bool flipped = false;

  explicit ParityOf(const Expr& parity) : integer(parity) {
    while (Peel()) {
    }
  }

 private:
  bool Peel() {
    const Expr e = integer;
    if (const auto* op = e.as<BitwiseAndNode>(); op && IsConst(op->b, 1)) return Is(op->a);
    if (const auto* op = e.as<FloorModNode>(); op && IsConst(op->b, 2)) return Is(op->a);
    const auto* cast = e.as<CastNode>();
    if (cast && IsPureInteger(cast->value)) return Is(cast->value);
    const auto* flip = e.as<BitwiseXorNode>();
    const auto* rest = e.as<SubNode>();
    if (flip && IsConst(flip->b, 1)) flipped = !flipped;
    if (flip && IsConst(flip->b, 1)) return Is(flip->a);
    if (!rest || !IsConst(rest->a, 1)) return false;
    flipped = !flipped;
    return Is(rest->b);
  }
  bool Is(const Expr& e) {
    integer = e;
    return true;
  }
};

/*! Proves that a loop's handshakes order all that its roles share. */
class Prover {
 public:
  /*! `slots` is the number of slots that the program numbers itself (pipeline_rings.h). It is 1 if
   * the pass is to make the versions. */
  Prover(const LoopPlace& place, const std::vector<BodyRole>& roles, int64_t slots)
      : place_(place),
        roles_(roles),
        slots_(slots),
        count_(CountIterations(place.function_body, place.loop)) {}

  size_t statement = 0;
  std::string why;
  Handshakes found;

  bool Prove(int64_t num_stages) {
    if (!count_.unknown.empty()) return Refuse(0, count_.unknown);
    if (!CollectSignals() || !CheckParities(num_stages)) return false;
    for (const Signal& s : signals_) {
      if (!CheckArrivals(s)) return false;
    }
    for (const Var& v : WrittenMemory()) {
      if (!CheckMemory(v)) return false;
    }
    for (const Signal& s : signals_) {
      if (!CheckAnswers(s)) return false;
    }
    if (found.tiles.empty()) return Refuse(0, "no role fills a tile that another one reads");
    Note(num_stages);
    return true;
  }

 private:
  bool Refuse(size_t at, const std::string& reason) {
    statement = at;
    why = reason;
    return false;
  }
  bool Refuse(const RoleStep& step, const std::string& reason) {
    return Refuse(step.statement, reason);
  }

  /*! The memory that a step reads and writes, without mbarriers. */
  BufferUse UseOf(const RoleStep& step) const {
    BufferUse use = place_.views.UseOf(step.stmt);
    for (std::vector<Var>* list : {&use.reads, &use.writes}) {
      list->erase(std::remove_if(list->begin(), list->end(), IsBarrier), list->end());
    }
    return use;
  }

  // --- mbarriers

  bool CollectSignals() {
    std::vector<const RoleStep*> steps;
    for (const BodyRole& role : roles_) {
      for (const RoleStep& step : role.steps) {
        if (step.kind != Kind::kOther) steps.push_back(&step);
      }
    }
    for (const RoleStep* step : steps) {
      SignalOf(*step);
      if (Contains(found.barriers, step->barrier)) continue;
      found.barriers.push_back(step->barrier);
      const std::string name = step->barrier->name;
      if (ScopeOf(step->barrier) == "shared.cluster_barrier") {
        return Refuse(*step, "other blocks of the cluster use mbarrier " + name);
      }
      const size_t mentions =
          CountIf(steps, [&](const RoleStep* s) { return s->barrier.same_as(step->barrier); });
      if (CountMentions(place_.function_body, step->barrier) > mentions) {
        return Refuse(*step, "mbarrier " + name +
                                 " is used outside of the loop's T.ws, or under a condition that "
                                 "is not about the thread's number alone");
      }
    }
    return true;
  }

  Signal& SignalOf(const RoleStep& step) {
    for (Signal& s : signals_) {
      if (s.IsOf(step)) return s;
    }
    return signals_.emplace_back(Signal{step.barrier, step.element});
  }

  /*! Each wait has a parity that the program computes. It may be that of the number n of iterations
   * before, as for one version. Or it is that of n divided by the number of versions. All waits of
   * a loop have to count in the same way. */
  bool CheckParities(int64_t num_stages) {
    if (slots_ > 1) return CheckParitiesOfSlots();
    if (CheckParitiesFor(1)) return true;
    if (!wrong_wait_) return false;
    const RoleStep* wait = wrong_wait_;
    const bool of_versions = CheckParitiesFor(num_stages);
    if (of_versions || !wrong_wait_) return of_versions;
    return Refuse(*wait, "the parity of the wait" + LineText(wait->stmt) +
                             " is neither that of the number of iterations before, as all waits "
                             "of the loop count, nor that of its quotient by num_stages=" +
                             std::to_string(num_stages));
  }

  bool CheckParitiesOfSlots() {
    if (CheckParitiesFor(slots_) || !wrong_wait_) return !wrong_wait_ && why.empty();
    return Refuse(*wrong_wait_, "the parity of the wait" + LineText(wrong_wait_->stmt) +
                                    " is not that of the number of iterations before, divided by "
                                    "the " +
                                    std::to_string(slots_) + " slots");
  }

  /*! Whether all parities are those of a program that counts for so many versions. */
  bool CheckParitiesFor(int64_t versions) {
    for (Signal& s : signals_) s.has_wait = s.of_phase_before = false;
    wrong_wait_ = nullptr;
    for (const BodyRole& role : roles_) {
      for (const RoleStep& step : role.steps) {
        if (step.kind != Kind::kWait) continue;
        const bool this_one = IsParityOf(step.parity, versions, 0);
        if (!this_one && !IsParityOf(step.parity, versions, 1)) {
          wrong_wait_ = &step;
          return false;
        }
        Signal& s = SignalOf(step);
        if (s.has_wait && s.of_phase_before == this_one) {
          return Refuse(step, "waits at mbarrier " + s.Name() + " are for two phases");
        }
        s.has_wait = true;
        s.of_phase_before = !this_one;
      }
    }
    return true;
  }

  /*! Whether a parity is that of this iteration's phase, or of the phase `more` later. */
  bool IsParityOf(const Expr& parity, int64_t versions, int64_t more) const {
    const ParityOf p(parity);
    if (!IsPureInteger(p.integer)) return false;
    Analyzer analyzer;
    for (const ForNode* outer : count_.around) analyzer.BindLoop(outer);
    analyzer.BindLoop(place_.loop);
    const int64_t phases = p.flipped ? 1 - more : more;
    const Expr count = CastTo(p.integer->dtype(), count_.Of(place_.loop));
    const Expr wanted = FloorModOf(FloorDivOf(count + phases * versions, versions), 2);
    return analyzer.CanProveEqual(p.integer, wanted) ||
           analyzer.CanProveEqual(FloorModOf(p.integer, 2), wanted);
  }

  /*! Whether each iteration makes as many arrivals as complete one phase. */
  bool CheckArrivals(const Signal& s) {
    if (!s.has_wait) return Refuse(0, "nothing in the loop waits at mbarrier " + s.Name());
    int64_t arrivals = 0;
    for (const BodyRole& role : roles_) {
      for (const RoleStep& step : role.steps) {
        if (step.kind == Kind::kArrive && s.IsOf(step)) arrivals += step.threads.Size();
      }
    }
    const auto known = place_.block->annotations.find(kBarrierInit);
    if (known == place_.block->annotations.end() ||
        !(*known).second.cast<Map<Var, Array<IntImm>>>().count(s.barrier)) {
      return Refuse(0, "the program initialises mbarrier " + s.Name() + " itself");
    }
    const auto wanted = (*known).second.cast<Map<Var, Array<IntImm>>>().at(s.barrier)[s.element];
    if (ToInt(wanted) != arrivals) {
      return Refuse(0, "mbarrier " + s.Name() + " takes " + std::to_string(ToInt(wanted)) +
                           " arrivals, and an iteration makes " + std::to_string(arrivals));
    }
    return true;
  }

  /*! A wait names a parity only. If two more phases ended before it, it would not return. So those
   * who arrive have to wait for those who wait. */
  bool CheckAnswers(const Signal& s) {
    for (const BodyRole& role : roles_) {
      if (const RoleStep* wait = FirstWait(role, s); wait && !IsAnswered(role, s)) {
        return Refuse(*wait, "not all who arrive at mbarrier " + s.Name() +
                                 " first wait for who waits there" + LineText(wait->stmt));
      }
    }
    return true;
  }

  static const RoleStep* FirstWait(const BodyRole& role, const Signal& s) {
    for (const RoleStep& step : role.steps) {
      if (step.kind == Kind::kWait && s.IsOf(step)) return &step;
    }
    return nullptr;
  }

  /*! The index of the first step for which `is` holds, or the number of steps. */
  template <typename F>
  static size_t First(const BodyRole& role, F is) {
    return FindIf(role.steps, is) - role.steps.begin();
  }
  static size_t FirstOf(const BodyRole& role, const Signal& s, Kind kind) {
    return First(role, [&](const RoleStep& t) { return t.kind == kind && s.IsOf(t); });
  }

  /*! Behind its wait at `s`, the role arrives at another mbarrier. All who arrive at `s` wait there
   * first. So the next phase of `s` ends only after the role has waited for this one. */
  bool IsAnswered(const BodyRole& role, const Signal& s) const {
    return AnyOf(signals_, [&](const Signal& other) {
      if (other.of_phase_before == s.of_phase_before) return false;
      const size_t arrival = FirstOf(role, other, Kind::kArrive);
      if (arrival == role.steps.size() || arrival < FirstOf(role, s, Kind::kWait)) return false;
      return AllOf(roles_, [&](const BodyRole& r) { return ArriveBehind(r, s, other); });
    });
  }

  /*! Whether all threads of the role that arrive at `s` have waited at `other` before. */
  static bool ArriveBehind(const BodyRole& role, const Signal& s, const Signal& other) {
    ThreadSet waited = role.threads.Where([](int64_t) { return false; });
    for (const RoleStep& step : role.steps) {
      if (step.kind == Kind::kWait && other.IsOf(step)) {
        waited = role.threads.Where(
            [&](int64_t thread) { return waited.Has(thread) || step.threads.Has(thread); });
      }
      if (step.kind != Kind::kArrive || !s.IsOf(step)) continue;
      const ThreadSet others = step.threads.Where([&](int64_t t) { return !waited.Has(t); });
      if (others.Size() > 0) return false;
    }
    return true;
  }

  // --- memory

  bool Writes(const RoleStep& s, const Var& v) const { return Contains(UseOf(s).writes, v); }
  bool Reads(const RoleStep& s, const Var& v) const { return Contains(UseOf(s).reads, v); }

  std::vector<Var> WrittenMemory() const {
    std::vector<Var> written;
    for (const BodyRole& role : roles_) {
      for (const RoleStep& step : role.steps) {
        for (const Var& v : UseOf(step).writes) {
          if (!Contains(written, v)) written.push_back(v);
        }
      }
    }
    return written;
  }

  /*! If one role writes a buffer and another one accesses it, the buffer has to be a tile that
   * mbarriers pass from one to the other. */
  bool CheckMemory(const Var& v) {
    if (IsLocal(v) || IsFragment(v) || IsReducer(v)) return true;
    std::vector<const BodyRole*> writers, readers;
    for (const BodyRole& role : roles_) {
      const size_t n = role.steps.size();
      if (First(role, [&](const RoleStep& s) { return Writes(s, v); }) < n) {
        writers.push_back(&role);
      }
      if (First(role, [&](const RoleStep& s) { return Reads(s, v); }) < n) {
        readers.push_back(&role);
      }
    }
    if (writers.size() == 1 && (readers.empty() || readers == writers)) return true;
    const std::string name = v->name;
    const RoleStep& at =
        writers[0]->steps[First(*writers[0], [&](const RoleStep& s) { return Writes(s, v); })];
    if (!IsShared(v)) return Refuse(at, "one role writes " + name + ", which another one uses");
    if (readers.empty()) return Refuse(at, "several roles write " + name + ", and none reads it");
    for (const BodyRole* writer : writers) {
      for (const BodyRole* reader : readers) {
        if (writer == reader) return Refuse(at, "a role both reads and writes " + name);
        if (!CheckPassing(v, *writer, *reader)) return false;
      }
    }
    if (!IsSuppliedInTime(v, writers, readers)) {
      return Refuse(at, "more of " + name + " is read than the loop writes");
    }
    if (const std::string used = UseOutside(v); !used.empty()) return Refuse(at, name + used);
    found.tiles.push_back(v);
    return true;
  }

  /*! One role fills the tile, another one reads it. Checks that the reader waits until the tile is
   * full, and that the writer waits until the tile has been read. */
  bool CheckPassing(const Var& v, const BodyRole& writer, const BodyRole& reader) {
    const std::string name = v->name;
    const size_t first_read = First(reader, [&](const RoleStep& s) { return Reads(s, v); });
    const size_t first_write = First(writer, [&](const RoleStep& s) { return Writes(s, v); });
    size_t last_read = 0;
    for (size_t i = first_read; i < reader.steps.size(); ++i) {
      if (!Reads(reader.steps[i], v)) continue;
      last_read = std::max(last_read, EndOfReads(reader.steps, i));
    }
    bool is_filled = true;
    for (size_t i = first_write; i < writer.steps.size(); ++i) {
      const RoleStep& fill = writer.steps[i];
      if (!Writes(fill, v)) continue;
      is_filled &= AnyOf(signals_, [&](const Signal& s) {
        return !s.of_phase_before && Signals(writer, i, s) &&
               FirstOf(reader, s, Kind::kWait) < first_read;
      });
    }
    if (!is_filled) {
      return Refuse(reader.steps[first_read], name + " is read" +
                                                  LineText(reader.steps[first_read].stmt) +
                                                  " without a wait for those who fill it");
    }
    const bool is_released = AnyOf(signals_, [&](const Signal& s) {
      const size_t arrival = FirstOf(reader, s, Kind::kArrive);
      return s.of_phase_before && arrival < reader.steps.size() && arrival > last_read &&
             FirstOf(writer, s, Kind::kWait) < first_write;
    });
    if (is_released) return true;
    return Refuse(writer.steps[first_write],
                  name + " is filled" + LineText(writer.steps[first_write].stmt) +
                      " without a wait for those who have read it to their end");
  }

  /*! Whether the role arrives at the mbarrier when its fill, step i, is complete. */
  static bool Signals(const BodyRole& role, size_t i, const Signal& s) {
    const RoleStep& fill = role.steps[i];
    const size_t n = role.steps.size();
    if (fill.kind == Kind::kLoad) return s.IsOf(fill) && FirstOf(role, s, Kind::kArrive) < n;
    const size_t arrival = FirstOf(role, s, Kind::kArrive);
    return arrival < n && arrival > i;
  }

  /*! Whether each reader reads only what the same iteration has written. */
  bool IsSuppliedInTime(const Var& v, const std::vector<const BodyRole*>& writers,
                        const std::vector<const BodyRole*>& readers) const {
    std::vector<Stmt> body;
    for (const BodyRole* writer : writers) {
      for (const RoleStep& s : writer->steps) {
        if (Writes(s, v)) body.push_back(s.stmt);
      }
    }
    for (const BodyRole* reader : readers) {
      for (const RoleStep& s : reader->steps) {
        if (!Reads(s, v)) continue;
        body.push_back(s.stmt);
        if (!IsSupplied(body, body.size() - 1, v, place_.views)) return false;
        body.pop_back();
      }
    }
    return true;
  }

  /*! Why a use of the tile outside of the loop forbids versions; "" if there is none. Code outside
   * of the loop accesses version 0. It may do so before the loop, or behind it if it writes first.
   */
  std::string UseOutside(const Var& v) const {
    std::vector<Var> names = {v};
    for (const Var& view : place_.views.all) {
      if (place_.views.RootOf(view).same_as(v)) names.push_back(view);
    }
    size_t everywhere = 0, inside = 0;
    for (const Var& name : names) {
      everywhere += CountMentions(place_.function_body, name);
      inside += CountMentions(place_.loop->body, name);
    }
    if (everywhere == inside) return "";
    if (!count_.around.empty()) return " is used outside of the loop, which another loop repeats";
    if (Contains(ReadsOutside(place_.function_body, place_.loop, place_.views), v)) {
      return " is read outside of the loop";
    }
    const bool is_shared = HasNode<ForNode>(place_.function_body, [&](const ForNode* op) {
      return !op->loop_var.same_as(place_.loop->loop_var) && op->annotations.count(kNumStages) &&
             AnyOf(names, [&](const Var& name) { return CountMentions(op->body, name) > 0; });
    });
    return is_shared ? " is used by another pipelined loop" : "";
  }

  void Note(int64_t num_stages) {
    const auto trips = AsInt(place_.loop->extent);
    found.versions = num_stages;
    // A version that no iteration fills is left out.
    if (trips && count_.around.empty()) {
      found.versions = std::clamp<int64_t>(*trips, 1, num_stages);
    }
    for (const Signal& s : signals_) {
      if (!s.of_phase_before) continue;
      Array<IntImm> elements;
      if (const auto known = found.phase_before.find(s.barrier);
          known != found.phase_before.end()) {
        elements = (*known).second;
      }
      elements.push_back(MakeInt(s.element));
      found.phase_before.Set(s.barrier, elements);
    }
  }

  const LoopPlace& place_;
  const std::vector<BodyRole>& roles_;
  const int64_t slots_;
  const IterationCount count_;
  std::vector<Signal> signals_;
  /*! The first wait whose parity is not understood. */
  const RoleStep* wrong_wait_ = nullptr;
};

}  // namespace

bool HasRoles(const std::vector<Stmt>& body) {
  return AnyOf(body, [](const Stmt& s) {
    return RangeOfRole(s) &&
           HasNode<CallNode>(s, [](const CallNode* op) { return BarrierOf(op) != nullptr; });
  });
}

namespace {

FoundHandshakes Prove(const LoopPlace& place, const std::vector<Stmt>& body, int64_t num_stages,
                      int64_t slots) {
  FoundHandshakes out;
  const BodyRoles roles = SplitRoles(body, place.threads, place.views);
  out.statement = roles.statement;
  out.why = roles.why;
  if (!out.why.empty()) return out;
  Prover prover(place, roles.roles, slots);
  if (prover.Prove(num_stages)) {
    out.handshakes = prover.found;
  } else {
    out.statement = prover.statement;
    out.why = prover.why;
  }
  return out;
}

/*! Makes the proof for the program with one slot of each ring. Then all tiles that the roles share
 * have to be rings: they have as many slots as the mbarriers. */
FoundHandshakes ProveRings(const LoopPlace& place, const Rings& rings) {
  FoundHandshakes out;
  out.why = rings.why;
  if (!out.why.empty()) return out;
  const Views views(rings.function_body);
  const LoopPlace one{rings.function_body, rings.loop.get(), views, place.threads,
                      rings.block.get()};
  out = Prove(one, InlineBindings(FlatSeq(rings.loop->body), views).body, rings.slots, rings.slots);
  if (!out.handshakes) return out;
  for (const Var& tile : out.handshakes->tiles) {
    if (Contains(rings.folded, tile)) continue;
    out.why = "its mbarriers have " + std::to_string(rings.slots) + " slots, " +
              std::string(tile->name) + " has one";
    out.handshakes.reset();
    return out;
  }
  Handshakes by_hand;
  by_hand.slots = rings.slots;
  by_hand.late = rings.late;
  for (const Var& ring : rings.buffers) {
    (IsBarrier(ring) ? by_hand.barriers : by_hand.tiles).push_back(ring);
  }
  out.handshakes = by_hand;
  return out;
}

}  // namespace

FoundHandshakes FindHandshakes(const LoopPlace& place, const std::vector<Stmt>& body,
                               int64_t num_stages) {
  const auto rings = FoldRings(place.function_body, place.loop, place.views, place.block);
  return rings ? ProveRings(place, *rings) : Prove(place, body, num_stages, 1);
}

Any Handshakes::ToAnnotation() const {
  return Map<String, Any>{{"versions", versions},
                          {"slots", slots},
                          {"late", late},
                          {"tiles", Array<Var>(tiles.begin(), tiles.end())},
                          {"barriers", Array<Var>(barriers.begin(), barriers.end())},
                          {"phase_before", phase_before}};
}

std::optional<Handshakes> Handshakes::Of(const ForNode* loop) {
  const auto known = loop->annotations.find(kHandshakes);
  if (known == loop->annotations.end()) return std::nullopt;
  const auto fields = (*known).second.cast<Map<String, Any>>();
  Handshakes out;
  out.versions = fields.at("versions").cast<int64_t>();
  out.slots = fields.at("slots").cast<int64_t>();
  out.late = fields.at("late").cast<bool>();
  for (const Var& v : fields.at("tiles").cast<Array<Var>>()) out.tiles.push_back(v);
  for (const Var& v : fields.at("barriers").cast<Array<Var>>()) out.barriers.push_back(v);
  out.phase_before = fields.at("phase_before").cast<Map<Var, Array<IntImm>>>();
  return out;
}

}  // namespace tl
