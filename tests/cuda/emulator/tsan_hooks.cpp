// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>

#include "tests/cuda/emulator/tracker.h"

// What a program does to memory, told by its own instructions: sources compiled with
// -fsanitize=thread call these functions where they touch memory. Linked without ThreadSanitizer's
// library, they tell the emulator. With the linker's --wrap, calls of memcpy and its kin tell, too.
// Memory of the stack and the heap is dropped at once (tracker.h).
namespace {

using zero::cuda::emulated::Access;
using zero::cuda::emulated::touch;

/// An atomic operation reads and writes.
template <class T>
void touch_both(volatile T* at) {
  touch(const_cast<T*>(at), sizeof(T), Access::read);
  touch(const_cast<T*>(at), sizeof(T), Access::write);
}

template <class T>
T load(const volatile T* at) {
  touch(const_cast<const T*>(at), sizeof(T), Access::read);
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

template <class T>
void store(volatile T* at, T value) {
  touch(const_cast<T*>(at), sizeof(T), Access::write);
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}

template <class T>
T exchange(volatile T* at, T value) {
  touch_both(at);
  return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}

template <class T>
T fetch_add(volatile T* at, T value) {
  touch_both(at);
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}

template <class T>
T fetch_sub(volatile T* at, T value) {
  touch_both(at);
  return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);
}

template <class T>
bool exchange_if(volatile T* at, T* expected, T wanted) {
  touch_both(at);
  return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read1(void* at) { touch(at, 1, Access::read); }
void __tsan_read2(void* at) { touch(at, 2, Access::read); }
void __tsan_read4(void* at) { touch(at, 4, Access::read); }
void __tsan_read8(void* at) { touch(at, 8, Access::read); }
void __tsan_read16(void* at) { touch(at, 16, Access::read); }
void __tsan_unaligned_read2(void* at) { touch(at, 2, Access::read); }
void __tsan_unaligned_read4(void* at) { touch(at, 4, Access::read); }
void __tsan_unaligned_read8(void* at) { touch(at, 8, Access::read); }
void __tsan_unaligned_read16(void* at) { touch(at, 16, Access::read); }
void __tsan_read_range(void* at, std::size_t bytes) { touch(at, bytes, Access::read); }
void __tsan_write1(void* at) { touch(at, 1, Access::write); }
void __tsan_write2(void* at) { touch(at, 2, Access::write); }
void __tsan_write4(void* at) { touch(at, 4, Access::write); }
void __tsan_write8(void* at) { touch(at, 8, Access::write); }
void __tsan_write16(void* at) { touch(at, 16, Access::write); }
void __tsan_unaligned_write2(void* at) { touch(at, 2, Access::write); }
void __tsan_unaligned_write4(void* at) { touch(at, 4, Access::write); }
void __tsan_unaligned_write8(void* at) { touch(at, 8, Access::write); }
void __tsan_unaligned_write16(void* at) { touch(at, 16, Access::write); }
void __tsan_write_range(void* at, std::size_t bytes) { touch(at, bytes, Access::write); }

char __tsan_atomic8_load(const volatile char* at, int) { return load(at); }
void __tsan_atomic8_store(volatile char* at, char value, int) { store(at, value); }
char __tsan_atomic8_exchange(volatile char* at, char value, int) { return exchange(at, value); }
char __tsan_atomic8_fetch_add(volatile char* at, char value, int) { return fetch_add(at, value); }
char __tsan_atomic8_fetch_sub(volatile char* at, char value, int) { return fetch_sub(at, value); }
bool __tsan_atomic8_compare_exchange_strong(volatile char* at, char* expected, char wanted, int,
                                            int) {
  return exchange_if(at, expected, wanted);
}
bool __tsan_atomic8_compare_exchange_weak(volatile char* at, char* expected, char wanted, int,
                                          int) {
  return exchange_if(at, expected, wanted);
}
int __tsan_atomic32_load(const volatile int* at, int) { return load(at); }
void __tsan_atomic32_store(volatile int* at, int value, int) { store(at, value); }
int __tsan_atomic32_exchange(volatile int* at, int value, int) { return exchange(at, value); }
int __tsan_atomic32_fetch_add(volatile int* at, int value, int) { return fetch_add(at, value); }
int __tsan_atomic32_fetch_sub(volatile int* at, int value, int) { return fetch_sub(at, value); }
bool __tsan_atomic32_compare_exchange_strong(volatile int* at, int* expected, int wanted, int,
                                             int) {
  return exchange_if(at, expected, wanted);
}
bool __tsan_atomic32_compare_exchange_weak(volatile int* at, int* expected, int wanted, int, int) {
  return exchange_if(at, expected, wanted);
}
long __tsan_atomic64_load(const volatile long* at, int) { return load(at); }
void __tsan_atomic64_store(volatile long* at, long value, int) { store(at, value); }
long __tsan_atomic64_exchange(volatile long* at, long value, int) { return exchange(at, value); }
long __tsan_atomic64_fetch_add(volatile long* at, long value, int) { return fetch_add(at, value); }
long __tsan_atomic64_fetch_sub(volatile long* at, long value, int) { return fetch_sub(at, value); }
bool __tsan_atomic64_compare_exchange_strong(volatile long* at, long* expected, long wanted, int,
                                             int) {
  return exchange_if(at, expected, wanted);
}
bool __tsan_atomic64_compare_exchange_weak(volatile long* at, long* expected, long wanted, int,
                                           int) {
  return exchange_if(at, expected, wanted);
}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  touch(from, bytes, Access::read);
  touch(to, bytes, Access::write);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  touch(from, bytes, Access::read);
  touch(to, bytes, Access::write);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  touch(to, bytes, Access::write);
  return __real_memset(to, value, bytes);
}

}  // extern "C"
