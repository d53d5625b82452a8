// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/processor.h"

#include <algorithm>
#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace zero::cpu {
namespace {

#if defined(__x86_64__)
bool has_pairs() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}

/// Whether the system saves a thread's tiles on a context switch.
bool system_saves_tiles() {
  constexpr unsigned kOsXsave = 1U << 27;
  constexpr unsigned kTileState = 3U << 17;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

/// Linux grants tiles only to processes that request them.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_tiles() {
  constexpr unsigned kFeatures = 7;
  constexpr unsigned kTiles = 1U << 22 | 1U << 24 | 1U << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) != 0 && (d & kTiles) == kTiles &&
         system_saves_tiles() && may_use_tiles();
}
#else
bool has_pairs() { return false; }
bool has_tiles() { return false; }
#endif

std::atomic<Bf16Instructions> limit{Bf16Instructions::tiles};

}  // namespace

Bf16Instructions bf16_instructions() {
  static const Bf16Instructions present = !has_pairs()  ? Bf16Instructions::none
                                          : has_tiles() ? Bf16Instructions::tiles
                                                        : Bf16Instructions::pairs;
  return std::min(present, limit.load());
}

void limit_bf16_instructions(Bf16Instructions most) { limit = most; }

}  // namespace zero::cpu
