// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "device/cpu/primitives.h"

namespace zero::cpu {
namespace {

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

// out[0, count) = the tree over the inputs' elements [begin, begin + count).
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
void dispatch(ReduceOp op, std::span<const View> inputs, View destination) {
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

void combine(std::span<const View> inputs, ReduceOp op, const View& destination) {
  check_combine(inputs, destination);
  // The vector kernel sums many fp32 values by the same tree.
  if (op == ReduceOp::sum && destination.dtype() == DType::fp32 &&
      destination.count() > kNormBlock) {
    return tree_reduce(inputs, {.addends = {}, .destination = destination, .norm = nullptr});
  }
  switch (destination.dtype()) {
    case DType::fp32:
      return dispatch<float>(op, inputs, destination);
    case DType::fp64:
      return dispatch<double>(op, inputs, destination);
    case DType::i32:
      return dispatch<std::int32_t>(op, inputs, destination);
    case DType::i64:
      return dispatch<std::int64_t>(op, inputs, destination);
    default:
      return;  // rejected by the checks
  }
}

}  // namespace zero::cpu
