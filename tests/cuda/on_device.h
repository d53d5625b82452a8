// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "device/cpu/primitives.h"
#include "device/device.h"
#include "tests/ops/ops_harness.h"

namespace zero::cuda {

/// Host values of one dtype, zeros at first.
struct HostValues {
  HostValues(std::int64_t count, DType type)
      : bytes(static_cast<std::size_t>(count * size_of(type)), std::byte{0}),
        view(bytes.data(), count, type, nullptr) {}
  std::vector<std::byte> bytes;
  View view;
};

/// A CUDA device, emulated or real, and host values on their way there and back.
class OnDevice : public ::testing::Test {
 protected:
  explicit OnDevice(std::shared_ptr<Device> device = testing::open_tested_device())
      : device_(std::move(device)) {}

  /// Device memory with the values of `host`, `shift` elements behind an aligned address.
  View upload(const View& host, std::int64_t shift = 0) {
    const View view = allocate(host.count(), host.dtype(), shift);
    device_->kernels().convert(device_->compute(), host, view);
    return view;
  }
  View allocate(std::int64_t count, DType dtype, std::int64_t shift = 0) {
    buffers_.push_back(device_->allocate(count + shift, dtype, MemoryClass::other, "x"));
    return buffers_.back().slice(shift, count);
  }
  /// The bytes of `view`, behind all work of the compute stream.
  std::vector<std::byte> download(const View& view) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes()));
    const View host(bytes.data(), view.count(), view.dtype(), nullptr);
    device_->kernels().convert(device_->compute(), view, host);
    device_->compute().synchronize();
    return bytes;
  }
  static std::vector<std::byte> bytes_of(const View& host) {
    const auto* const data = static_cast<const std::byte*>(host.data());
    return {data, data + host.bytes()};
  }
  /// Whether a view of the device has the values of `host`, bit for bit; NaNs are equal, because
  /// the arithmetic of each device makes NaNs of its own.
  bool same(const View& host, const View& there) {
    if (!is_floating(host.dtype())) return bytes_of(host) == download(there);
    const auto bits = [](const std::vector<std::byte>& bytes, DType dtype) {
      const View view(const_cast<std::byte*>(bytes.data()),
                      static_cast<std::int64_t>(bytes.size()) / size_of(dtype), dtype, nullptr);
      HostValues wide(view.count(), DType::fp32);
      cpu::convert(view, wide.view);
      for (float& value : wide.view.as<float>())
        if (std::isnan(value)) value = std::nanf("");
      return wide.bytes;
    };
    return bits(bytes_of(host), host.dtype()) == bits(download(there), there.dtype());
  }

  std::unique_ptr<HostValues> normal(std::int64_t count, DType dtype) {
    std::vector<float> floats(static_cast<std::size_t>(count));
    for (float& value : floats) value = normal_(random_);
    auto values = std::make_unique<HostValues>(count, dtype);
    cpu::convert(View::of(std::span(floats)), values->view);
    return values;
  }
  /// The same with an infinity and a NaN, apart, if there are enough values.
  std::unique_ptr<HostValues> not_all_finite(std::int64_t count, DType dtype) {
    auto values = normal(count, dtype);
    for (const auto& [at, value] : {std::pair(300, HUGE_VALF), std::pair(700, std::nanf(""))})
      if (at < count) cpu::convert(View::of(std::span(&value, 1)), values->view.slice(at, 1));
    return values;
  }

  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  std::shared_ptr<Device> device_;
  std::vector<Buffer> buffers_;
};

}  // namespace zero::cuda
