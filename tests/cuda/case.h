// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/device.h"
#include "tests/cuda/emulator/emulator.h"

namespace zero::cuda {

/// A CUDA device of an emulated machine of its own, and host values on their way there and back.
class EmulatedDevice : public ::testing::Test {
 protected:
  explicit EmulatedDevice(const emulated::Settings& settings = {}) { restart(settings); }
  ~EmulatedDevice() override { close(); }

  void restart(const emulated::Settings& settings) {
    close();
    emulated::reset(settings);
    device_ = open();
  }
  void close() {
    buffers_.clear();
    device_.reset();
    emulated::reset();
  }

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

  std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_;
};

}  // namespace zero::cuda
