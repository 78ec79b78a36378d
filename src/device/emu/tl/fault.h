/*!
 * Hardware faults of a kernel (wild addresses, stack overflow, integer division by zero) as errors
 * of the launch.
 *
 * The handler runs on a stack of its own and leaves it by switching to the worker's context, as
 * other errors do. It is installed while kernels of this library run; faults of other code go to
 * the handler that was there before.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <tl/error.h>
#include <tl/stacks.h>
#include <tl/watchdog.h>

namespace tl {
namespace emu {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr int kSignalCount = 3;

struct FaultHandlers {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  int users = 0;
  struct sigaction previous[kSignalCount], before_watchdog;
};
inline FaultHandlers fault_handlers;

inline void on_fault(int signal, siginfo_t* info, void*) {
  if (!worker || !worker->current) {
    for (int i = 0; i < kSignalCount; ++i) {
      if (kSignals[i] == signal) sigaction(signal, &fault_handlers.previous[i], nullptr);
    }
    return;  // the instruction faults again, now with the previous handler
  }
  const Location last_known = worker->current->where;
  Text& text = begin_error(last_known);
  if (signal == SIGFPE) {
    text.add("integer division by zero, or in C's way of the least integer by -1");
  } else if (in_guard_page(worker->stacks, worker->threads(), info->si_addr)) {
    text.add("the thread's local variables need more than %zu KiB", kStackBytes / 1024);
  } else {
    text.add("invalid address %p", info->si_addr);
  }
  if (last_known.file) text.add("; the line is the last one known before it");
  abandon();
}

inline void install_fault_handlers() {
  pthread_mutex_lock(&fault_handlers.mutex);
  if (fault_handlers.users++ == 0) {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    // The handler does not return after an error, so the signal must not stay blocked.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < kSignalCount; ++i) {
      sigaction(kSignals[i], &action, &fault_handlers.previous[i]);
    }
#ifdef __linux__
    action.sa_sigaction = on_watchdog;
    action.sa_flags |= SA_RESTART;
    sigaction(watchdog_signal(), &action, &fault_handlers.before_watchdog);
#endif
  }
  pthread_mutex_unlock(&fault_handlers.mutex);
}

inline void remove_fault_handlers() {
  pthread_mutex_lock(&fault_handlers.mutex);
  if (--fault_handlers.users == 0) {
    for (int i = 0; i < kSignalCount; ++i) {
      sigaction(kSignals[i], &fault_handlers.previous[i], nullptr);
    }
#ifdef __linux__
    sigaction(watchdog_signal(), &fault_handlers.before_watchdog, nullptr);
#endif
  }
  pthread_mutex_unlock(&fault_handlers.mutex);
}

}  // namespace emu
}  // namespace tl
