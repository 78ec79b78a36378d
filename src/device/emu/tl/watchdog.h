/*!
 * A thread that runs on and on without waiting: it polls memory through a plain pointer, or its
 * loop has no end. Other threads of its worker never come to run, so that nobody inside of the
 * launch can see it; a timer of the processor time that the worker's OS thread takes does.
 *
 * The timer's signal is handled as a fault is (fault.h). It goes to the thread that the timer
 * belongs to, so that none is left when the timer has been deleted. Linux has such timers;
 * elsewhere there is no watchdog.
 */
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <tl/error.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace tl {
namespace emu {

/*! What the handler is given, which may be that of another program's library. */
struct Watch {
  void (*check)();
  unsigned long milliseconds;
  unsigned long turns;  // of the worker, when it was looked at last
};

inline thread_local Watch watch;

inline void check_turns() {
  if (!worker || !worker->current || worker->failed) return;
  if (worker->turns != watch.turns) {
    watch.turns = worker->turns;
    return;
  }
  const Location last_known = worker->current->where;
  Text& text = begin_error(last_known);
  text.add(
      "it runs for %g s without waiting for anything, so that no other thread goes on. Poll memory "
      "with T.atomic_load, give a loop an end, or set TILELANG_EMULATE_PATIENCE to more seconds",
      double(watch.milliseconds) / 1e3);
  if (last_known.file) text.add("; the line is the last one known before it");
  abandon();
}

#ifdef __linux__

inline int watchdog_signal() { return SIGRTMIN + 8; }

inline void on_watchdog(int, siginfo_t* info, void*) {
  if (info->si_code == SI_TIMER) static_cast<Watch*>(info->si_value.sival_ptr)->check();
}

/*! Watches this OS thread while it lives; 0 milliseconds: it does not. */
class Watchdog {
 public:
  explicit Watchdog(unsigned long milliseconds) {
    if (milliseconds == 0) return;
    watch = {check_turns, milliseconds, worker->turns};
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = watchdog_signal();
    event.sigev_value.sival_ptr = &watch;
    event.sigev_notify_thread_id = int(syscall(SYS_gettid));
    on_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
    itimerspec period = {};
    period.it_value.tv_sec = period.it_interval.tv_sec = time_t(milliseconds / 1000);
    period.it_value.tv_nsec = period.it_interval.tv_nsec = long(milliseconds % 1000) * 1000000;
    if (on_) timer_settime(timer_, 0, &period, nullptr);
  }
  Watchdog(const Watchdog&) = delete;
  ~Watchdog() {
    if (on_) timer_delete(timer_);
  }

 private:
  timer_t timer_ = {};
  bool on_ = false;
};

#else

struct Watchdog {
  explicit Watchdog(unsigned long) {}
};

#endif

}  // namespace emu
}  // namespace tl
