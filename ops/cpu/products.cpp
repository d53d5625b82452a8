// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/products.h"

#include <algorithm>
#include <atomic>

#include "ops/cpu/skinny_product.h"

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

KernelKind choose_bf16_kernels() {
  const Bf16Instructions instructions = bf16_instructions();
  if (instructions == Bf16Instructions::tiles && packed::tile_kernels() != nullptr) {
    return KernelKind::tiles;
  }
  if (instructions == Bf16Instructions::pairs && packed::pairs_are_fast()) {
    return KernelKind::pairs;
  }
  return KernelKind::floats;
}

}  // namespace

Bf16Instructions bf16_instructions() {
  static const Bf16Instructions present = !has_pairs()  ? Bf16Instructions::none
                                          : has_tiles() ? Bf16Instructions::tiles
                                                        : Bf16Instructions::pairs;
  return std::min(present, limit.load());
}

void limit_bf16_instructions(Bf16Instructions most) { limit = most; }

// Called for each packed operand, hence cached.
KernelKind kernels_of(DType dtype) {
  static const KernelKind of_bf16 = choose_bf16_kernels();
  return dtype == DType::bf16 ? of_bf16 : KernelKind::floats;
}

const packed::Kernels& gemm_kernels(DType dtype) {
  switch (kernels_of(dtype)) {
    case KernelKind::tiles:
      return *packed::tile_kernels();
    case KernelKind::pairs:
      return *packed::pair_kernels();
    case KernelKind::floats:
      break;
  }
  return packed::float_kernels();
}

std::string_view name_of(KernelKind kernels) {
  switch (kernels) {
    case KernelKind::tiles:
      return "tiles";
    case KernelKind::pairs:
      return "pairs";
    case KernelKind::floats:
      return "floats";
  }
  return "";
}

Algorithm algorithm_of(const WeightShape& shape, std::int64_t rows) {
  switch (kernels_of(shape.dtype)) {
    case KernelKind::tiles:
      return Algorithm::gemm;
    case KernelKind::pairs:
      return Algorithm::bf16_dot;
    case KernelKind::floats:
      break;
  }
  return rows <= SkinnyProduct::kMost && has_gemv() ? Algorithm::gemv : Algorithm::gemm;
}

DType product_dtype(const WeightShape& shape) {
  return kernels_of(shape.dtype) == KernelKind::floats ? DType::fp32 : shape.dtype;
}

double flop_in_registers(DType dtype, std::int64_t turns) {
  const packed::Kernels& kernels = gemm_kernels(dtype);
  if (kernels.in_registers == nullptr) return 0;
  kernels.begin();
  const double flop = kernels.in_registers(turns);
  kernels.end();
  return flop;
}

std::int64_t packed_right_bytes(const ProductShape& shape) {
  return packed_right_bytes(shape, gemm_kernels(shape.in));
}

PackedRight pack_right(const ProductShape& shape, const void* b, void* to) {
  return pack_right(shape, gemm_kernels(shape.in), b, to);
}

const Product& Products::get(const ProductShape& shape, Right right) {
  const auto at = made_.find({shape, right});
  if (at != made_.end()) return at->second;
  const bool fp32 = right == Right::packed_fp32;
  const Product& made =
      made_
          .try_emplace({shape, right}, shape, threads_, gemm_kernels(fp32 ? DType::fp32 : shape.in),
                       fp32 ? Right::packed : right)
          .first->second;
  scratch_bytes_ = std::max(scratch_bytes_, made.scratch_bytes());
  return made;
}

}  // namespace zero::cpu
