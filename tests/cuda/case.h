// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/on_device.h"

namespace zero::cuda {

/// A CUDA device of an emulated machine of its own.
class EmulatedDevice : public OnDevice {
 protected:
  explicit EmulatedDevice(const emulated::Settings& settings = {}) : OnDevice(nullptr) {
    restart(settings);
  }
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
};

}  // namespace zero::cuda
