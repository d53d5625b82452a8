// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/ops.h"
#include "tests/model/reference.h"

namespace zero::testing {

using reference::Values;

/// Values in [-1, 1] that fp32 holds exactly, or bf16 where `dtype` is that.
inline Values random_values(std::int64_t count, std::uint32_t seed, DType dtype = DType::fp32) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = uniform(generator);
    values.push_back(dtype == DType::bf16 ? to_float(to_bfloat16(value)) : value);
  }
  return values;
}

inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int32_t vocabulary,
                                               std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocabulary)));
  }
  return tokens;
}

/// A device with Ops, and tensors that live as long as it does.
class Harness {
 public:
  explicit Harness(std::unique_ptr<Device> opened)
      : device(std::move(opened)), ops(make_ops(*device)) {}
  explicit Harness(int threads = 1) : Harness(cpu::open({.threads = threads})) {}

  View empty(std::int64_t count, DType dtype) {
    buffers_.push_back(device->allocate(count, dtype, MemoryClass::other, "test"));
    const View view = buffers_.back().view();
    // Kernels must write all they promise: what they leave is NaN, and fails every comparison.
    if (count > 0) std::memset(view.data(), 0xff, static_cast<std::size_t>(view.bytes()));
    return view;
  }
  View tensor(const Values& values, DType dtype) {
    const View view = empty(static_cast<std::int64_t>(values.size()), dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::bf16) {
        view.as<bfloat16>()[i] = to_bfloat16(static_cast<float>(values[i]));
      } else {
        view.as<float>()[i] = static_cast<float>(values[i]);
      }
    }
    return view;
  }
  View tokens(const std::vector<std::int32_t>& ids) {
    const View view = empty(static_cast<std::int64_t>(ids.size()), DType::i32);
    std::copy(ids.begin(), ids.end(), view.as<std::int32_t>().begin());
    return view;
  }
  Values read(View view) {
    device->compute().synchronize();
    Values values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(view.count()); ++i) {
      switch (view.dtype()) {
        case DType::bf16:
          values.push_back(to_float(view.as<bfloat16>()[i]));
          break;
        case DType::fp64:
          values.push_back(view.as<double>()[i]);
          break;
        default:
          values.push_back(view.as<float>()[i]);
      }
    }
    return values;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;

 private:
  std::vector<Buffer> buffers_;
};

/// Each value within `tolerance` of the expected, relative to the largest expected magnitude.
inline void expect_near(const Values& found, const Values& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 1e-3;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * largest) << what << ", element " << i;
  }
}

/// What one rounding to a dtype, and sums in fp32, may cost.
inline double rounding(DType dtype) { return dtype == DType::bf16 ? 1.0 / 128 : 3e-6; }

inline std::string label(DType dtype) { return std::string(name_of(dtype)); }

}  // namespace zero::testing
