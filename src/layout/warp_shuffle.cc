#include "warp_shuffle.h"

#include <unordered_set>

namespace tl {
namespace {

constexpr int kWordBits = 32;
/*! A place is a thread's number, and the register's coordinates above so many bits. */
constexpr int kThreadBits = 16;
constexpr int64_t kThreadMask = (int64_t(1) << kThreadBits) - 1;

int64_t ThreadOf(int64_t place) { return place & kThreadMask; }
int64_t RegisterOf(int64_t place) { return place >> kThreadBits; }
int64_t PlaceAt(int64_t thread, int64_t reg) { return thread | reg << kThreadBits; }
bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/*! How the elements of a shape are numbered: blocks, and bits in each. */
struct Numbering {
  /*! For each bit the row-major number of the element whose number has it alone. */
  std::vector<int64_t> bits;
  /*! The first element of each block. */
  std::vector<int64_t> blocks = {0};

  explicit Numbering(const std::vector<int64_t>& shape) {
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      int64_t odd = shape[d], width = 1;
      for (; odd % 2 == 0; odd /= 2, width *= 2) bits.push_back(stride * width);
      std::vector<int64_t> more;
      for (int64_t first : blocks) {
        for (int64_t q = 0; q < odd; ++q) more.push_back(first + q * width * stride);
      }
      blocks = std::move(more);
      stride *= shape[d];
    }
  }

  /*! The elements of a block, in the order of their bits. */
  std::vector<int64_t> Elements(int64_t first) const {
    std::vector<int64_t> out = {first};
    for (int64_t bit : bits) {
      const size_t n = out.size();
      for (size_t k = 0; k < n; ++k) out.push_back(out[k] + bit);
    }
    return out;
  }
};

/*! A fragment whose blocks are one linear map of bits. */
struct BitFragment {
  int64_t first_thread;
  std::vector<int64_t> first_registers;
  RegisterBits registers;
  /*! Places of the element's bits, then of the replica's; the threads without the first one. */
  BitColumns places;
};

int64_t XorOrSum(const std::vector<int64_t>& parts, int64_t bits, bool is_sum) {
  int64_t out = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (bits >> k & 1) out = is_sum ? out + parts[k] : out ^ parts[k];
  }
  return out;
}

/*! Whether register - first = the parts of the element's bits, everywhere. */
bool AreRegisters(const Fragment& f, const Numbering& numbering, const std::vector<int64_t>& parts,
                  bool is_sum) {
  for (int64_t first : numbering.blocks) {
    const std::vector<int64_t> elements = numbering.Elements(first);
    for (size_t e = 0; e < elements.size(); ++e) {
      const int64_t found = f->Table()[elements[e]] - f->Table()[first];
      if (found != XorOrSum(parts, int64_t(e), is_sum)) return false;
    }
  }
  return true;
}

/*! Whether no two coordinates are one register. */
bool AreDistinct(const RegisterBits& registers) {
  std::unordered_set<int64_t> numbers;
  const int64_t count = int64_t(1) << registers.parts.size();
  for (int64_t c = 0; c < count; ++c) numbers.insert(registers.Number(c));
  return int64_t(numbers.size()) == count;
}

/*! Coordinates of the registers, for each of the element's bits. */
std::optional<BitColumns> Coordinates(const Fragment& f, const Numbering& numbering,
                                      RegisterBits* registers) {
  std::vector<int64_t> parts;
  for (int64_t bit : numbering.bits) {
    parts.push_back(f->Table()[numbering.blocks[0] + bit] - f->Table()[numbering.blocks[0]]);
  }
  BitColumns out;
  registers->is_sum = AreRegisters(f, numbering, parts, true);
  if (registers->is_sum) {
    for (int64_t part : parts) {
      out.push_back(part ? int64_t(1) << registers->parts.size() : 0);
      if (part) registers->parts.push_back(part);
    }
    return AreDistinct(*registers) ? std::optional(out) : std::nullopt;
  }
  if (!AreRegisters(f, numbering, parts, false)) return std::nullopt;
  PartialMap basis;
  for (int64_t part : parts) {
    if (basis.Spans(part)) continue;
    basis.Define(part, int64_t(1) << registers->parts.size());
    registers->parts.push_back(part);
  }
  for (int64_t part : parts) out.push_back(basis.At(part));
  return out;
}

std::optional<BitFragment> BitsOf(const Fragment& f, const Numbering& numbering) {
  if (!IsPowerOfTwo(f->replicate)) return std::nullopt;
  BitFragment out;
  const auto coordinates = Coordinates(f, numbering, &out.registers);
  if (!coordinates) return std::nullopt;
  const std::vector<int64_t>& threads = f->ThreadTable();
  out.first_thread = threads[0];
  for (size_t k = 0; k < numbering.bits.size(); ++k) {
    const int64_t thread = threads[numbering.bits[k] * f->replicate] ^ out.first_thread;
    out.places.push_back(PlaceAt(thread, (*coordinates)[k]));
  }
  BitColumns replicas;
  for (int64_t r = 1; r < f->replicate; r *= 2) replicas.push_back(threads[r] ^ out.first_thread);
  for (int64_t first : numbering.blocks) {
    out.first_registers.push_back(f->Table()[first]);
    const std::vector<int64_t> elements = numbering.Elements(first);
    for (size_t e = 0; e < elements.size(); ++e) {
      const int64_t thread = out.first_thread ^ ThreadOf(Apply(out.places, int64_t(e)));
      for (int64_t r = 0; r < f->replicate; ++r) {
        if (threads[elements[e] * f->replicate + r] != (thread ^ Apply(replicas, r))) {
          return std::nullopt;
        }
      }
    }
  }
  out.places.insert(out.places.end(), replicas.begin(), replicas.end());
  return out;
}

/*! The linear map from places of the destination to places of the source: the nearest copy of the
 * element. */
class PlaceMap {
 public:
  PlaceMap(const BitFragment& from, const BitFragment& to, size_t element_bits, int thread_bits,
           int64_t warp_threads)
      : from_(from), element_bits_(element_bits), warp_(warp_threads) {
    // Registers first, which are the higher bits, so that places which are threads alone stay so.
    PartialMap inputs;
    for (const int kind : {0, 1, 2}) {
      for (size_t k = 0; k < to.places.size(); ++k) {
        const int64_t place = to.places[k];
        if (kind != (ThreadOf(place) == 0 ? 0 : RegisterOf(place) == 0 ? 1 : 2)) continue;
        const auto rest = inputs.Define(place, int64_t(1) << k);
        // Two elements in one place.
        if (rest.input == 0 && (rest.output & ElementMask())) is_possible_ = false;
      }
    }
    // From element bits to places, and where its replicas are.
    for (size_t k = element_bits; k < from.places.size(); ++k) {
      const int64_t thread = from.places[k];
      replicas_.Define(thread, thread);
    }
    for (const auto& e : replicas_.entries()) {
      if (e.input < warp_) in_warp_.push_back(e.input);
    }
    Choose(inputs.entries());
    for (int b = 0; b < thread_bits; ++b) {
      // Threads that hold nothing read anything of their own warp.
      const int64_t bit = int64_t(1) << b;
      if (!map_.Spans(bit)) map_.Define(bit, bit < warp_ ? 0 : bit);
    }
  }

  bool IsPossible() const { return is_possible_; }
  int64_t At(int64_t place) const { return map_.At(place); }

 private:
  int64_t ElementMask() const { return (int64_t(1) << element_bits_) - 1; }

  void Choose(const std::vector<PartialMap::Entry>& wanted) {
    struct Open {
      int64_t place, source, displaced;
    };
    std::vector<Open> open;
    PartialMap of_threads, of_registers;
    for (const auto& [place, input] : wanted) {
      const int64_t source = Apply(from_.places, input & ElementMask());
      const int64_t displaced = replicas_.Reduce(ThreadOf(place) ^ ThreadOf(source)).input;
      if (displaced >= warp_) is_possible_ = false;
      if (displaced) {
        open.push_back({place, source, displaced});
      } else {
        Define(place, ThreadOf(place), source, &of_threads);
      }
    }
    for (const Open& o : open) {
      if (!ThreadOf(o.place)) continue;
      // Lanes best read different lanes.
      int64_t thread = ThreadOf(o.place) ^ o.displaced;
      for (size_t k = 0; of_threads.Spans(thread) && k < in_warp_.size(); ++k) {
        const int64_t other = ThreadOf(o.place) ^ o.displaced ^ in_warp_[k];
        if (!of_threads.Spans(other)) thread = other;
      }
      Define(o.place, thread, o.source, &of_threads);
    }
    for (const Open& o : open) {
      if (ThreadOf(o.place)) continue;
      // Registers are best read from few lanes.
      PartialMap few = of_registers;
      for (int64_t r : in_warp_) few.Define(r, r);
      Define(o.place, o.displaced ^ few.At(o.displaced), o.source, &of_registers);
    }
  }

  void Define(int64_t place, int64_t thread, int64_t source, PartialMap* images) {
    images->Define(thread, 0);
    map_.Define(place, PlaceAt(thread, RegisterOf(source)));
  }

  const BitFragment& from_;
  size_t element_bits_;
  int64_t warp_;
  PartialMap replicas_, map_;
  std::vector<int64_t> in_warp_;
  bool is_possible_ = true;
};

/*! Places of the source by bits of a thread and by bits of a round. */
struct Rounds {
  BitColumns of_thread, of_round;
  int registers = 0;  // of the rounds' bits, those that are the destination's registers
};

/*! M: which register a lane receives, so that no lane is asked for two in a round; adds rounds
 * where there is no such order. */
BitColumns ChooseKept(Rounds* rounds) {
  PartialMap lanes, registers_asked;
  BitColumns kept(rounds->of_thread.size(), 0);
  std::vector<size_t> dependent;
  std::vector<int64_t> kernel;
  for (size_t b = 0; b < kept.size(); ++b) {
    const auto rest = lanes.Define(ThreadOf(rounds->of_thread[b]), int64_t(1) << b);
    if (rest.input) continue;
    dependent.push_back(b);
    kernel.push_back(rest.output);
  }
  PartialMap asked;  // lanes that something is received from in a round
  for (const auto& e : lanes.entries()) asked.Define(e.input, 0);
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t reg = RegisterOf(Apply(rounds->of_thread, kernel[i]));
    // The value of the bits of which a combination asks for the same register: the same element.
    const auto same = registers_asked.Reduce(reg);
    if (same.input == 0) {
      kept[dependent[i]] = same.output;
      continue;
    }
    int64_t own = 0;
    for (int c = 0; c < rounds->registers && !own; ++c) {
      const int64_t lane = ThreadOf(rounds->of_round[c]);
      if (asked.Spans(lane)) continue;
      asked.Define(lane, 0);
      own = int64_t(1) << c;
    }
    if (!own) {
      own = int64_t(1) << rounds->of_round.size();
      rounds->of_round.push_back(PlaceAt(0, reg));
    }
    kept[dependent[i]] = own;
    registers_asked.Define(reg, own);
  }
  return kept;
}

/*! Which places of the source hold nothing. */
void FindEmpty(const BitFragment& source, int thread_bits, WarpShuffle* out) {
  PartialMap held;
  for (int64_t place : source.places) held.Define(place, 0);
  // What is left, moved together: registers behind threads.
  const auto rest = [&](int64_t place) {
    const int64_t left = held.Reduce(place).input;
    return ThreadOf(left) | RegisterOf(left) << thread_bits;
  };
  for (int b = 0; b < thread_bits; ++b) out->empty_threads.push_back(rest(int64_t(1) << b));
  for (size_t c = 0; c < source.registers.parts.size(); ++c) {
    out->empty_registers.push_back(rest(PlaceAt(0, int64_t(1) << c)));
  }
}

/*! Numbers the rounds: elements that go together in a word first, then those that stay in their
 * lane. */
void NumberRounds(const Rounds& rounds, int bits, WarpShuffle* out) {
  const size_t count = rounds.of_round.size();
  std::vector<int64_t> together, apart;
  PartialMap lanes;
  for (size_t c = 0; c < count; ++c) {
    const auto rest = lanes.Define(ThreadOf(rounds.of_round[c]), int64_t(1) << c);
    (rest.input ? apart : together).push_back(rest.input ? int64_t(1) << c : rest.output);
  }
  out->element_bits = 0;
  for (int width = bits; width < kWordBits && size_t(out->element_bits) < together.size();
       width *= 2) {
    ++out->element_bits;
  }
  BitColumns order = together;
  AppendRange(&order, apart);
  PartialMap back;
  for (size_t k = 0; k < count; ++k) back.Define(order[k], int64_t(1) << k);
  for (size_t c = 0; c < count; ++c) out->round_of.push_back(back.At(int64_t(1) << c));
  for (int64_t c : order) {
    const int64_t place = Apply(rounds.of_round, c);
    out->lane_of_round.push_back(ThreadOf(place));
    out->sent_register.push_back(RegisterOf(place) ^ Apply(out->sends, ThreadOf(place)));
  }
  out->words = int64_t(1) << (count - out->element_bits);
  bool stays = out->first_source == out->first_target;
  for (size_t b = 0; b < out->lanes.size(); ++b) stays &= out->lanes[b] == int64_t(1) << b;
  out->kept_words = stays ? int64_t(1) << (together.size() - out->element_bits) : 0;
}

}  // namespace

int64_t RegisterBits::Number(int64_t coordinates) const {
  return XorOrSum(parts, coordinates, is_sum);
}

std::vector<LaneSwap> LaneSwaps(const BitColumns& reorder) {
  PartialMap basis;
  std::vector<LaneSwap> swaps;
  for (int64_t column : reorder) {
    if (basis.Spans(column)) continue;
    basis.Define(column, int64_t(1) << swaps.size());
    swaps.push_back({0, column});
  }
  for (size_t b = 0; b < reorder.size(); ++b) {
    const int64_t used = basis.At(reorder[b]);
    for (size_t k = 0; k < swaps.size(); ++k) {
      if (used >> k & 1) swaps[k].threads |= int64_t(1) << b;
    }
  }
  return swaps;
}

int64_t WarpShuffle::Shuffles(int bits) const {
  return int64_t(blocks.size()) * (words - kept_words) * ((bits + kWordBits - 1) / kWordBits);
}

int64_t WarpShuffle::Selects() const {
  const int64_t kept = int64_t(1) << target.parts.size();
  const int64_t all = words << element_bits;
  BitColumns reorder = keeps;
  for (int64_t& column : reorder) column &= kept - 1;
  return int64_t(blocks.size()) * ((int64_t(LaneSwaps(sends).size()) << source.parts.size()) +
                                   int64_t(LaneSwaps(reorder).size()) * kept + all - kept);
}

int64_t WarpShuffle::CostBits(int bits) const {
  // A shuffle takes the time of an access of shared memory of a word, a selection that of a
  // quarter: the units of a multiprocessor take 32 and 128 lanes a cycle (CUDA C++ Programming
  // Guide, "Arithmetic Instructions").
  return Shuffles(bits) * kWordBits + Selects() * kWordBits / 4;
}

int64_t SharedCostBits(const Fragment& from, const Fragment& to, int bits) {
  constexpr int64_t kBarrierBits = 512;
  return (from->RegisterExtent() + to->RegisterExtent()) * bits + 2 * kBarrierBits;
}

std::optional<WarpShuffle> PlanWarpShuffle(const Fragment& from, const Fragment& to, int bits,
                                           int64_t num_threads, int64_t warp_threads) {
  constexpr size_t kMostBlocks = 32, kMostBits = 24;
  if (num_threads % warp_threads || from->Shape() != to->Shape() || bits < 8) return std::nullopt;
  const Numbering numbering(from->Shape());
  if (numbering.blocks.size() > kMostBlocks || numbering.bits.size() > kMostBits) {
    return std::nullopt;
  }
  const auto source = BitsOf(from, numbering), target = BitsOf(to, numbering);
  if (!source || !target) return std::nullopt;
  if ((source->first_thread ^ target->first_thread) >= warp_threads) return std::nullopt;
  int thread_bits = 0;
  while ((int64_t(1) << thread_bits) < num_threads) ++thread_bits;
  const PlaceMap map(*source, *target, numbering.bits.size(), thread_bits, warp_threads);
  if (!map.IsPossible()) return std::nullopt;

  Rounds rounds;
  rounds.registers = int(target->registers.parts.size());
  for (int b = 0; b < thread_bits; ++b) rounds.of_thread.push_back(map.At(int64_t(1) << b));
  for (int c = 0; c < rounds.registers; ++c) {
    rounds.of_round.push_back(map.At(PlaceAt(0, int64_t(1) << c)));
  }
  WarpShuffle out;
  out.source = source->registers;
  out.target = target->registers;
  out.first_source = source->first_thread;
  out.first_target = target->first_thread;
  for (size_t b = 0; b < numbering.blocks.size(); ++b) {
    out.blocks.emplace_back(source->first_registers[b], target->first_registers[b]);
  }
  out.keeps = ChooseKept(&rounds);
  // What a lane sends follows from who asks.
  PartialMap sent;
  for (int b = 0; b < thread_bits; ++b) {
    const int64_t place = rounds.of_thread[b] ^ Apply(rounds.of_round, out.keeps[b]);
    out.lanes.push_back(ThreadOf(place));
    const auto rest = sent.Define(ThreadOf(place), RegisterOf(place));
    TVM_FFI_ICHECK(rest.input || !rest.output) << "a lane is asked for two registers in a round";
  }
  for (int b = 0; b < thread_bits; ++b) out.sends.push_back(sent.At(int64_t(1) << b));
  FindEmpty(*source, thread_bits, &out);
  NumberRounds(rounds, bits, &out);
  return out;
}

}  // namespace tl
