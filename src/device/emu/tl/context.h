/*!
 * Switching between fibers: 4 ns in hand-written assembly, 300 ns through ucontext, which saves the
 * signal mask.
 *
 * TL_EMU_UCONTEXT asks for ucontext where the assembly exists too, for tests.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(TL_EMU_UCONTEXT)

// Pushes the registers that a function has to preserve, and takes the other stack: what it finds
// there was pushed by this function, or made by make_context.
extern "C" __attribute__((visibility("hidden"))) void tl_emu_switch(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
  .text
  .weak tl_emu_switch
  .hidden tl_emu_switch
  .type tl_emu_switch, @function
tl_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tl_emu_switch, . - tl_emu_switch
)");
#else
asm(R"(
  .text
  .weak tl_emu_switch
  .hidden tl_emu_switch
  .type tl_emu_switch, %function
tl_emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size tl_emu_switch, . - tl_emu_switch
)");
#endif

namespace tl {
namespace emu {

struct Context {
  void* stack_pointer;
};

/*! A context that will run `entry`, which does not return, on the stack below `top` (a multiple of
 * 16). */
inline void make_context(Context& context, char* top, size_t, void (*entry)()) {
  void** sp = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
  constexpr int kPreserved = 6;
  *--sp = nullptr;  // where entry would find its return address
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kPreserved; ++i) *--sp = nullptr;
#else
  constexpr int kFrame = 20, kReturnAddress = 11;
  sp -= kFrame;
  for (int i = 0; i < kFrame; ++i) sp[i] = nullptr;
  sp[kReturnAddress] = reinterpret_cast<void*>(entry);
#endif
  context.stack_pointer = sp;
}

inline void switch_context(Context& save, Context& load) {
  tl_emu_switch(&save.stack_pointer, load.stack_pointer);
}

}  // namespace emu
}  // namespace tl

#else

#include <ucontext.h>

namespace tl {
namespace emu {

struct Context {
  ucontext_t registers;
};

inline void make_context(Context& context, char* top, size_t size, void (*entry)()) {
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = top - size;
  context.registers.uc_stack.ss_size = size;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
}

inline void switch_context(Context& save, Context& load) {
  swapcontext(&save.registers, &load.registers);
}

}  // namespace emu
}  // namespace tl

#endif
