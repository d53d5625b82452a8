// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#error "the emulator's context switch is written for x86-64"
#endif

extern "C" void zero_emulator_switch(void** save, void* load);

// Saves what a call keeps, changes stacks, restores.
asm(R"(
.text
.globl zero_emulator_switch
.type zero_emulator_switch, @function
zero_emulator_switch:
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
.size zero_emulator_switch, .-zero_emulator_switch
)");

namespace zero::cuda::emulated {
namespace {

constexpr std::size_t kStack = 256U << 10;  // touched pages alone cost memory
constexpr std::size_t kGuard = 4096;
constexpr std::size_t kColours = 60;
constexpr std::size_t kLine = 64;
constexpr int kKept = 6;  // registers that a call keeps

thread_local Fiber* starting = nullptr;
thread_local std::size_t made = 0;

}  // namespace

// Stacks begin at different lines of their pages: the caches could not hold many of them otherwise.
Fiber::Fiber() : shift_(made++ % kColours * kLine) {
  void* const memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<std::byte*>(memory) + kGuard;
  mprotect(memory, kGuard, PROT_NONE);
#if defined(__SANITIZE_THREAD__)
  thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(thread_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  // Forgotten frames left their red zones, and the next memory here need be no stack.
  __asan_unpoison_memory_region(stack_, kStack);
#endif
  munmap(stack_ - kGuard, kGuard + kStack);
}

void Fiber::restart(Entry entry) {
  entry_ = entry;
#if defined(__SANITIZE_ADDRESS__)
  // Frames that were forgotten, here or of a stack that lay here before, left their red zones.
  __asan_unpoison_memory_region(stack_, kStack);
#endif
  auto** const top = reinterpret_cast<void**>(stack_ + kStack - shift_);
  top[-1] = nullptr;  // where begin() would return to
  top[-2] = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 0; i < kKept; ++i) top[-3 - i] = nullptr;
  own_ = top - 2 - kKept;
  fake_stack_ = nullptr;
}

void Fiber::begin() {
  Fiber* const fiber = starting;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->caller_bottom_, &fiber->caller_size_);
#endif
  fiber->entry_();
}

void Fiber::resume() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_, kStack);
#endif
#if defined(__SANITIZE_THREAD__)
  caller_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_, 0);
#endif
  zero_emulator_switch(&caller_, own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, caller_bottom_, caller_size_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_thread_, 0);
#endif
  zero_emulator_switch(&own_, caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom_, &caller_size_);
#endif
}

}  // namespace zero::cuda::emulated
