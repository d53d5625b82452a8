// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "tests/errors.h"

namespace zero::testing {

/// Elements of a floating dtype in host memory.
class Elements {
 public:
  Elements() = default;
  Elements(DType dtype, std::int64_t count)
      : dtype_(dtype), count_(count), bytes_(static_cast<std::size_t>(count * size_of(dtype))) {}

  View view() { return {bytes_.data(), count_, dtype_, nullptr}; }
  float get(std::int64_t i) const {
    if (dtype_ == DType::bf16) return to_float(at<bfloat16>(i));
    if (dtype_ == DType::fp16) return to_float(at<float16>(i));
    return at<float>(i);
  }
  void set(std::int64_t i, float value) {
    if (dtype_ == DType::bf16) return put(i, to_bfloat16(value));
    if (dtype_ == DType::fp16) return put(i, to_float16(value));
    return put(i, value);
  }
  friend bool operator==(const Elements&, const Elements&) = default;  // bits, NaNs too

 private:
  template <typename T>
  T at(std::int64_t i) const {
    T value;
    std::memcpy(&value, &bytes_.at(static_cast<std::size_t>(i) * sizeof(T)), sizeof(T));
    return value;
  }
  template <typename T>
  void put(std::int64_t i, T value) {
    std::memcpy(&bytes_.at(static_cast<std::size_t>(i) * sizeof(T)), &value, sizeof(T));
  }

  DType dtype_ = DType::fp32;
  std::int64_t count_ = 0;
  std::vector<std::byte> bytes_;
};

/// Everything one parameter's update touches.
struct State {
  Elements master;
  Elements moment0;
  Elements moment1;
  Elements gradient;
  Elements compute;

  /// The arguments for elements [begin, begin + count).
  UpdateArguments arguments(std::int64_t begin, std::int64_t count) {
    const bool copy = !compute.view().empty();
    return {.master = master.view().slice(begin, count),
            .moments = {moment0.view().slice(begin, count), moment1.view().slice(begin, count)},
            .gradient = gradient.view().slice(begin, count),
            .compute = copy ? compute.view().slice(begin, count) : View()};
  }
  friend bool operator==(const State&, const State&) = default;
};

struct StateTypes {
  DType gradient = DType::fp32;
  DType compute = DType::fp32;  ///< fp32: no copy
};

/// Masters of size 1, gradients over many magnitudes, moments as after some steps.
inline State some_state(std::int64_t count, StateTypes types, std::uint64_t seed) {
  State state{
      .master = {DType::fp32, count},
      .moment0 = {DType::fp32, count},
      .moment1 = {DType::fp32, count},
      .gradient = {types.gradient, count},
      .compute = types.compute == DType::fp32 ? Elements() : Elements(types.compute, count)};
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) {
    const float gradient = normal(random) * std::exp2(4 * normal(random) - 6);
    state.master.set(i, normal(random));
    state.gradient.set(i, gradient);
    state.moment0.set(i, 0.1F * gradient + 0.01F * normal(random));
    state.moment1.set(i, 0.05F * gradient * gradient + 1e-6F * std::abs(normal(random)));
  }
  return state;
}

}  // namespace zero::testing
