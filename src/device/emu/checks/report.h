/*!
 * What the checks have found in a launch. It goes to the caller as text that
 * tilelang/emulator/reports.py reads: a report is a record of fields, one access after the other.
 */
#pragma once

#include <tl/error.h>

#include "shadow.h"

namespace tl {
namespace emu {

/*! Who did what, where. */
struct Party {
  Access access;
  unsigned block, thread;
  Engine engine;
  Site site;
};

enum class Space : uint8_t { kShared, kGlobal, kLocal };

struct Report {
  const char* kind;  // "race", "uninitialized", "out-of-bounds"
  const char* missing;
  Party now, before;  // before.site is 0 where there is one access only
  Space space;
  int argument;  // of the kernel, in global memory
  // From the start of the argument, of dynamic shared memory, or of the array.
  long offset;
  unsigned bytes;
  bool has_base;  // the array is known: it begins `base` from there, and has `extent` bytes
  long base;
  unsigned long extent;
  unsigned long count;
};

class Reports {
 public:
  void add(const Report& report) {
    for (unsigned i = 0; i < count_; ++i) {
      if (!alike(reports_[i], report)) continue;
      ++reports_[i].count;
      return;
    }
    if (count_ == kMost) {
      ++further_;
    } else {
      reports_[count_] = report;
      reports_[count_++].count = 1;
    }
  }

  bool empty() const { return count_ == 0; }
  void write(Text& text, Locations& locations) const;

 private:
  static bool alike(const Report& a, const Report& b) {
    return a.kind == b.kind && a.now.site == b.now.site && a.before.site == b.before.site &&
           a.now.access == b.now.access && a.before.access == b.before.access &&
           a.space == b.space && a.argument == b.argument;
  }

  static constexpr unsigned kMost = 64;
  Report reports_[kMost];
  unsigned count_;
  unsigned long further_;
};

// The library's own first byte: where the code's offsets are counted from.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

inline Site site_of(const void* code) {
  return static_cast<Site>(static_cast<const char*>(code) - __ehdr_start);
}

constexpr char kRecord = '\x1e';

inline const char* name_of(Access access) {
  static const char* const names[] = {"read",         "write",  "atomic read",
                                      "atomic write", "atomic", "atomic read",
                                      "atomic write", "atomic", "access"};
  return names[static_cast<int>(access)];
}

inline const char* name_of(Engine engine) {
  // The copies of a thread: NVIDIA's, and what vmem.h has of AMD's.
  constexpr const char* kCopy = kWarpSize == 32 ? "cp.async" : "copy to LDS";
  static const char* const names[] = {"", kCopy, "bulk store", "bulk store", "wgmma", "bulk load"};
  return names[static_cast<unsigned>(engine)];
}

inline void add_party(Text& text, const Party& party, Locations& locations) {
  const unsigned x = blockDim.x, y = blockDim.y, gx = gridDim.x, gy = gridDim.y;
  const unsigned t = party.thread, blocks = gx * gy * gridDim.z, b = party.block % blocks;
  const unsigned hosts = worker->ranks * blocks;
  if (worker->ranks > 1 && party.block >= hosts) {
    // What a rank's host did before the launch.
    text.add("%c%s%chost%c%u%c%c", kField, name_of(Access::kWrite), kField, kField,
             party.block - hosts, kField, kField);
    return;
  }
  text.add("%c%s%c%s%c(%u, %u, %u)", kField, name_of(party.access), kField, name_of(party.engine),
           kField, b % gx, b / gx % gy, b / (gx * gy));
  if (worker->ranks > 1) text.add(" of rank %u", party.block / blocks);
  text.add("%c(%u, %u, %u)%c", kField, t % x, t / x % y, t / (x * y), kField);
  if (party.site & kTopBit) {
    const Location where = locations[party.site];
    text.add("%s:%d", where.file, where.line);
  } else if (party.site) {
    text.add("+%#x", party.site);
  }
}

inline void Reports::write(Text& text, Locations& locations) const {
  static const char* const spaces[] = {"shared", "global", "local"};
  for (unsigned i = 0; i < count_; ++i) {
    const Report& r = reports_[i];
    text.add("%c%s%c%lu%c%s%c%s%c%d%c%ld%c%u%c", kRecord, r.kind, kField, r.count, kField,
             r.missing, kField, spaces[static_cast<int>(r.space)], kField, r.argument, kField,
             r.offset, kField, r.bytes, kField);
    if (r.has_base) text.add("%ld", r.base);
    text.add("%c%lu", kField, r.extent);
    add_party(text, r.now, locations);
    if (strcmp(r.kind, "race") == 0) add_party(text, r.before, locations);
  }
  if (further_) text.add("%cfurther%c%lu", kRecord, kField, further_);
}

}  // namespace emu
}  // namespace tl
