// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "device/cpu/primitives.h"

namespace zero::cpu {
namespace {

bool converts(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16;
}

bool combines(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::fp64 || dtype == DType::i32 || dtype == DType::i64;
}

bool overlap(const View& a, const View& b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data());
  return begin_a < begin_b + static_cast<std::uintptr_t>(b.bytes()) &&
         begin_b < begin_a + static_cast<std::uintptr_t>(a.bytes());
}

/// Whether blocks of `to` may be written before later blocks of `from` are read.
bool writable_over(const View& from, const View& to) {
  return !overlap(from, to) ||
         (from.data() == to.data() && size_of(to.dtype()) <= size_of(from.dtype()));
}

void check_input(const View& input, const View& first, const View& destination) {
  ZERO_CHECK(converts(input.dtype()) && input.dtype() == first.dtype(),
             "tree_reduce: an input is {}, expected all inputs of one of fp32, bf16, fp16 (the "
             "first is {})",
             name_of(input.dtype()), name_of(first.dtype()));
  ZERO_CHECK(input.count() == destination.count(),
             "tree_reduce: an input has {} elements, expected the destination's {}", input.count(),
             destination.count());
  ZERO_CHECK(!overlap(input, destination) ||
                 (input.data() == destination.data() && input.dtype() == destination.dtype()),
             "tree_reduce: the destination overlaps an input; expected the very same memory and "
             "dtype, or none of it");
}

void check_addend(const View& addend, const View& destination) {
  ZERO_CHECK(addend.dtype() == DType::fp32, "tree_reduce: an addend is {}, expected fp32",
             name_of(addend.dtype()));
  ZERO_CHECK(addend.count() == destination.count(),
             "tree_reduce: an addend has {} elements, expected the destination's {}",
             addend.count(), destination.count());
  ZERO_CHECK(writable_over(addend, destination),
             "tree_reduce: the destination overlaps an addend; expected the same start, or none "
             "of it");
}

}  // namespace

void check_convert(const View& from, const View& to) {
  ZERO_CHECK(from.count() == to.count(), "convert: source has {} elements, destination {}",
             from.count(), to.count());
  ZERO_CHECK(from.dtype() == to.dtype() || (converts(from.dtype()) && converts(to.dtype())),
             "convert: {} to {}; expected equal dtypes, or two of fp32, bf16, fp16",
             name_of(from.dtype()), name_of(to.dtype()));
  ZERO_CHECK(writable_over(from, to),
             "convert: {} source and {} destination overlap; expected no overlap, or the same "
             "start with destination elements not larger",
             name_of(from.dtype()), name_of(to.dtype()));
}

void check_tree_reduce(std::span<const View> inputs, const ReduceEpilogue& epilogue) {
  const View& destination = epilogue.destination;
  ZERO_CHECK(!inputs.empty(), "tree_reduce: no inputs, expected at least one");
  ZERO_CHECK(converts(destination.dtype()),
             "tree_reduce: the destination is {}, expected fp32, bf16 or fp16",
             name_of(destination.dtype()));
  for (const View& input : inputs) check_input(input, inputs.front(), destination);
  for (const View& addend : epilogue.addends) check_addend(addend, destination);
}

void check_combine(std::span<const View> inputs, const View& to) {
  ZERO_CHECK(!inputs.empty(), "combine: no inputs, expected at least one");
  ZERO_CHECK(combines(to.dtype()), "cannot combine {} values; expected fp32, fp64, i32 or i64",
             name_of(to.dtype()));
  for (const View& input : inputs) {
    ZERO_CHECK(input.dtype() == to.dtype() && input.count() == to.count(),
               "combine: an input has {} {}, expected the destination's {} {}", input.count(),
               name_of(input.dtype()), to.count(), name_of(to.dtype()));
    ZERO_CHECK(input.data() == to.data() || !overlap(input, to),
               "combine: the destination overlaps an input; expected the very same memory, or "
               "none of it");
  }
}

}  // namespace zero::cpu
