/*!
 * Registers that a warp's products read and write, from their issue until the warp has waited for
 * their group. In between nobody else may touch them (PTX ISA, wgmma.mma_async).
 */
#pragma once

#include "race.h"

namespace tl {
namespace emu {

inline unsigned char* known_bytes(const void* local) {
  return worker->checker->local_bytes + (static_cast<const char*>(local) - worker->stacks);
}

/*! Lane 0 stands for its warp. */
inline Fiber& first_lane(const Fiber& thread) {
  return thread.block->fibers[thread.linear / kWarpSize * kWarpSize];
}

inline bool lies_in(const void* at, const void* memory, size_t bytes) {
  return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(memory) < bytes;
}

/*! Says where byte `i` of the access is in the thread's arrays. */
inline void place_in_array(const Observation& now, unsigned i, Report* report) {
  report->space = Space::kLocal;
  report->bytes -= i;
  for (const LocalArray* a = now.by.thread->arrays.innermost; a; a = a->outer) {
    if (!lies_in(now.at + i, a->data, a->bytes)) continue;
    report->has_base = true;
    report->offset = now.at + i - static_cast<const char*>(a->data);
    report->extent = a->bytes;
  }
}

/*! The bytes from the first undefined one on are reported, once. */
inline void check_local_defined(const Observation& now) {
  unsigned char* known = known_bytes(now.at);
  const void* undefined = memchr(known, kUndefined, now.bytes);
  if (!checks(kCheckUninitialized) || !undefined) return;
  Report report = report_of(now, "uninitialized");
  place_in_array(now, static_cast<const unsigned char*>(undefined) - known, &report);
  worker->checker->reports.add(report);
  for (unsigned i = 0; i < now.bytes; ++i) {
    if (known[i] == kUndefined) known[i] = kDefined;
  }
}

/*! A thread's own access of registers that a product uses. */
inline void check_in_flight(const Observation& now) {
  const void* used = memchr(known_bytes(now.at), kInFlight, now.bytes);
  if (!used) return;
  const unsigned i = static_cast<const unsigned char*>(used) - known_bytes(now.at);
  const Fiber& thread = *now.by.thread;
  for (const Flight* f = worker->checker->flights; f; f = f->next) {
    if (f->warp != &first_lane(thread)) continue;
    if (!lies_in(now.at + i, f->registers[thread.linear % kWarpSize], f->bytes)) continue;
    // The PTX ISA leaves a read of A's registers undefined, too, but it changes nothing.
    if (!f->written && now.access == Access::kRead) continue;
    Report report = report_of(now, "race");
    report.before = {f->written ? Access::kWrite : Access::kRead, number_of(*thread.block),
                     thread.linear, Engine::kWgmma, f->site};
    place_in_array(now, i, &report);
    worker->checker->reports.add(report);
  }
}

/*! A product of the warp uses `bytes` bytes of registers of each lane. */
inline void begin_flight(Fiber& warp, const void* const* registers, unsigned bytes, bool written,
                         unsigned group, Site site) {
  Flight* flight = worker->checker->flights;
  while (flight && (flight->warp != &warp || flight->registers[0] != registers[0] ||
                    flight->bytes != bytes || flight->written != written)) {
    flight = flight->next;
  }
  if (!flight) {
    flight = static_cast<Flight*>(zeroed(sizeof(Flight)));
    flight->next = worker->checker->flights;
    worker->checker->flights = flight;
  }
  flight->warp = &warp;
  flight->bytes = bytes;
  flight->written = written;
  flight->group = group;
  flight->site = site;
  for (int l = 0; l < kWarpSize; ++l) {
    flight->registers[l] = registers[l];
    memset(known_bytes(registers[l]), checks(kCheckRaces) ? kInFlight : kDefined, bytes);
  }
}

/*! The warp's groups before `group` are complete; nullptr for those of all warps. */
inline void end_flights(const Fiber* warp, unsigned group) {
  for (Flight** link = &worker->checker->flights; *link;) {
    Flight* const flight = *link;
    if (warp && (flight->warp != warp || flight->group >= group)) {
      link = &flight->next;
      continue;
    }
    for (const void* registers : flight->registers) {
      memset(known_bytes(registers), kDefined, flight->bytes);
    }
    *link = flight->next;
    free(flight);
  }
}

}  // namespace emu
}  // namespace tl
