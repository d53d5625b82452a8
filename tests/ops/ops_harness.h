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
#include "ops/ops.h"
#include "tests/ops/reference.h"
#include "tests/support/reference_sums.h"

namespace zero::testing {

using reference::Values;

/// Values in [-1, 1] that `dtype` holds exactly.
inline Values random_values(std::int64_t count, std::uint32_t seed, DType dtype = DType::fp32) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(rounded_to(dtype, uniform(generator)));
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

/// The device that a test program is about: ops_tests the CPU, emulated_ops_tests an emulated
/// GPU, gpu_tests a real one, which all tests share: to open it costs more than a test.
std::shared_ptr<Device> open_tested_device();

/// Where views begin: at the multiples of 64 bytes that devices give, or one element further.
enum class Alignment : std::uint8_t { whole, element };

/// What a test of operations is run for.
struct Tested {
  DType dtype = DType::fp32;
  Alignment alignment = Alignment::whole;
};
/// What operations compute in.
inline constexpr DType kComputed[] = {DType::fp32, DType::bf16, DType::fp16};
inline constexpr Tested kTested[] = {{DType::fp32},
                                     {DType::bf16},
                                     {DType::fp16},
                                     {DType::fp32, Alignment::element},
                                     {DType::bf16, Alignment::element}};
inline std::string label(const Tested& tested) {
  return std::string(name_of(tested.dtype)) +
         (tested.alignment == Alignment::element ? "_misaligned" : "");
}

/// A device with Ops, and tensors that live as long as it does. Host code sees them by copies that
/// the compute stream makes.
class Harness {
 public:
  explicit Harness(std::shared_ptr<Device> opened, Alignment alignment = Alignment::whole)
      : device(std::move(opened)), ops(make_ops(*device)), alignment_(alignment) {}
  explicit Harness(int threads) : Harness(cpu::open({.threads = threads})) {}
  Harness() : Harness(open_tested_device()) {}
  explicit Harness(Alignment alignment) : Harness(open_tested_device(), alignment) {}
  ~Harness() { device->compute().synchronize(); }

  View empty(std::int64_t count, DType dtype) {
    // Kernels must write all they promise: what they leave is NaN, and fails every comparison.
    return upload(
        std::vector<std::byte>(static_cast<std::size_t>(count * size_of(dtype)), std::byte{0xff}),
        dtype);
  }
  View tensor(const Values& values, DType dtype) {
    switch (dtype) {
      case DType::bf16:
        return upload_as<bfloat16>(
            values, [](double value) { return to_bfloat16(static_cast<float>(value)); });
      case DType::fp16:
        return upload_as<float16>(
            values, [](double value) { return to_float16(static_cast<float>(value)); });
      case DType::fp64:
        return upload_as<double>(values, [](double value) { return value; });
      default:
        return upload_as<float>(values, [](double value) { return static_cast<float>(value); });
    }
  }
  View tokens(const std::vector<std::int32_t>& ids) {
    return upload_as<std::int32_t>(ids, [](std::int32_t id) { return id; });
  }
  std::vector<std::byte> bytes(View view) {
    std::vector<std::byte> copy(static_cast<std::size_t>(view.bytes()));
    if (!copy.empty()) {
      device->kernels().convert(device->compute(), view,
                                View(copy.data(), view.count(), view.dtype(), nullptr));
    }
    device->compute().synchronize();
    return copy;
  }
  Values read(View view) {
    switch (view.dtype()) {
      case DType::bf16:
        return values_of<bfloat16>(view, [](bfloat16 value) { return to_float(value); });
      case DType::fp16:
        return values_of<float16>(view, [](float16 value) { return to_float(value); });
      case DType::fp64:
        return values_of<double>(view, [](double value) { return value; });
      default:
        return values_of<float>(view, [](float value) { return value; });
    }
  }

  std::shared_ptr<Device> device;
  std::unique_ptr<Ops> ops;

 private:
  View upload(std::vector<std::byte> values, DType dtype) {
    const std::int64_t count = static_cast<std::int64_t>(values.size()) / size_of(dtype);
    const std::int64_t before = alignment_ == Alignment::element ? 1 : 0;
    buffers_.push_back(device->allocate(count + before, dtype, MemoryClass::other, "test"));
    const View view = buffers_.back().view().slice(before, count);
    uploaded_.push_back(std::move(values));
    if (count > 0) {
      device->kernels().convert(device->compute(),
                                View(uploaded_.back().data(), count, dtype, nullptr), view);
    }
    return view;
  }
  template <typename T, typename From, typename Convert>
  View upload_as(const From& values, const Convert& convert) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = convert(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
    return upload(std::move(bytes), dtype_of<T>);
  }
  template <typename T, typename Convert>
  Values values_of(View view, const Convert& convert) {
    const std::vector<std::byte> copied = bytes(view);
    Values values;
    for (std::size_t at = 0; at < copied.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, copied.data() + at, sizeof(T));
      values.push_back(convert(value));
    }
    return values;
  }

  Alignment alignment_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<std::byte>> uploaded_;  // until the stream has passed their copies
};

inline Values sum_of(const Values& a, const Values& b) {
  Values sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  return sum;
}

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
inline double rounding(DType dtype) {
  if (dtype == DType::fp32) return 3e-6;
  return dtype == DType::bf16 ? 1.0 / 128 : 1.0 / 1024;  // two units in the last place
}

inline std::string label(DType dtype) { return std::string(name_of(dtype)); }

}  // namespace zero::testing
