// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/primitives.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include "device/cpu/primitives.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

const char* target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "device/cpu/parallel.h"
#include "device/planning/clock.h"

namespace zero::cpu {
HWY_EXPORT(target);

namespace {

constexpr std::int64_t kGenerated = 1 << 12;  // elements: a random value takes about 20 ns

std::int64_t bytes_of(const std::vector<View>& views) {
  std::int64_t bytes = 0;
  for (const View& view : views) bytes += view.bytes();
  return bytes;
}

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

constexpr std::int64_t kBlock = 256;  // elements per pass: one buffer per partial result

template <typename T>
struct Add {
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

template <typename T>
struct Maximum {
  T operator()(T a, T b) const { return (a != a || a > b) ? a : b; }
};

template <typename T>
struct Minimum {
  T operator()(T a, T b) const { return (a != a || a < b) ? a : b; }
};

/// out[0, count) = the tree over the inputs' elements [begin, begin + count).
template <typename T, typename Op>
void tree_block(std::span<const View> inputs, std::int64_t begin, std::int64_t count, T* out) {
  if (inputs.size() == 1) {
    std::copy_n(static_cast<const T*>(inputs[0].data()) + begin, count, out);
    return;
  }
  const std::size_t half = std::bit_floor(inputs.size() - 1);
  std::array<T, kBlock> right;
  tree_block<T, Op>(inputs.first(half), begin, count, out);
  tree_block<T, Op>(inputs.subspan(half), begin, count, right.data());
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = Op{}(out[i], right[static_cast<std::size_t>(i)]);
}

template <typename T, typename Op>
void tree(std::span<const View> inputs, View destination) {
  std::array<T, kBlock> result;
  for (std::int64_t begin = 0; begin < destination.count(); begin += kBlock) {
    const std::int64_t count = std::min(kBlock, destination.count() - begin);
    tree_block<T, Op>(inputs, begin, count, result.data());
    std::copy_n(result.data(), count, static_cast<T*>(destination.data()) + begin);
  }
}

template <typename T>
void combine_as(ReduceOp op, std::span<const View> inputs, View destination) {
  switch (op) {
    case ReduceOp::sum:
      return tree<T, Add<T>>(inputs, destination);
    case ReduceOp::max:
      return tree<T, Maximum<T>>(inputs, destination);
    case ReduceOp::min:
      return tree<T, Minimum<T>>(inputs, destination);
  }
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

void combine(std::span<const View> inputs, ReduceOp op, const View& destination) {
  check_combine(inputs, destination);
  // The vector kernel sums many fp32 values by the same tree.
  if (op == ReduceOp::sum && destination.dtype() == DType::fp32 &&
      destination.count() > kNormBlock) {
    return tree_reduce(inputs, {.addends = {}, .destination = destination, .norm = nullptr});
  }
  switch (destination.dtype()) {
    case DType::fp32:
      return combine_as<float>(op, inputs, destination);
    case DType::fp64:
      return combine_as<double>(op, inputs, destination);
    case DType::i32:
      return combine_as<std::int32_t>(op, inputs, destination);
    case DType::i64:
      return combine_as<std::int64_t>(op, inputs, destination);
    default:
      return;  // rejected by the checks
  }
}

std::string_view simd_target() { return HWY_DYNAMIC_DISPATCH(target)(); }

std::string bits() { return "cpu " + std::string(simd_target()); }

void CpuKernels::convert(Stream& stream, View from, View to) {
  check_convert(from, to);
  planning::announce(stream, from.bytes() + to.bytes());
  stream.submit("convert",
                [from, to, threads = threads_on(stream)] { cpu::convert(from, to, threads); });
}

void CpuKernels::zero(Stream& stream, View view) {
  planning::announce(stream, view.bytes());
  stream.submit("zero", [view, threads = threads_on(stream)] { cpu::zero(view, threads); });
}

void CpuKernels::poison(Stream& stream, View view) {
  planning::announce(stream, view.bytes());
  stream.submit("poison", [view, threads = threads_on(stream)] { cpu::poison(view, threads); });
}

void CpuKernels::generate(Stream& stream, View to, Source source) {
  ZERO_CHECK(to.dtype() == DType::fp32, "generate: values are fp32, the destination is {}",
             name_of(to.dtype()));
  stream.submit("generate", [to, source = std::move(source), threads = threads_on(stream)] {
    const std::span<float> out = to.as<float>();
    parallel_for(threads, to.count(), kGenerated, [&](std::int64_t begin, std::int64_t end) {
      source(begin,
             out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    });
  });
}

void CpuKernels::tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) {
  check_tree_reduce(inputs, epilogue);
  planning::announce(stream,
                     bytes_of(inputs) + bytes_of(epilogue.addends) + epilogue.destination.bytes());
  stream.submit("tree_reduce",
                [inputs = std::move(inputs), epilogue = std::move(epilogue),
                 threads = threads_on(stream)] { cpu::tree_reduce(inputs, epilogue, threads); });
}

void CpuKernels::combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) {
  check_combine(inputs, to);
  planning::announce(stream, bytes_of(inputs) + to.bytes());
  stream.submit("combine", [inputs = std::move(inputs), op, to] { cpu::combine(inputs, op, to); });
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
