// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "collectives/communicator.h"

namespace zero {

/// What all communicators that stand before another one share: they are its ranks, on its memory.
/// Collectives are left to the derived class, which calls `inner_`'s public methods. A split gives
/// a part of `inner`, without the decorator.
class CommunicatorDecorator : public Communicator {
 public:
  /// `inner` must outlive this.
  explicit CommunicatorDecorator(Communicator& inner)
      : Communicator(inner.context()), inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  std::string_view backend() const override { return inner_.backend(); }
  std::string_view transport() const override { return inner_.transport(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    return inner_.allocate(device, count, dtype, memory_class, label);
  }
  CommonBuffer allocate_common(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    return inner_.allocate_common(device, count, dtype, memory_class, label);
  }
  Store& store() override { return inner_.store(); }

 protected:
  std::int64_t do_reduce_scatter_workspace(const Slices& full) const override {
    return inner_.reduce_scatter_workspace(full);
  }

  Communicator& inner_;  ///< every collective goes on to it
};

}  // namespace zero
