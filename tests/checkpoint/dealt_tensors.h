// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weights.h"

namespace zero::testing {

/// Tensors whose elements are dealt to ranks in runs of `run`, so that parts start anywhere.
class DealtTensors {
 public:
  struct Spec {
    std::string name;
    std::vector<std::int64_t> shape;
    DType dtype = DType::fp32;
  };
  DealtTensors(const std::vector<Spec>& specs, int rank, int world, std::int64_t run);

  std::span<LogicalTensor> list() { return tensors_; }
  /// Sets every owned element to value(tensor, element).
  void fill(const std::function<float(std::size_t, std::int64_t)>& value);
  /// Whether every owned element has that value.
  bool holds(const std::function<float(std::size_t, std::int64_t)>& value) const;

 private:
  template <typename Body>
  void each(const Body& body) const;

  std::vector<LogicalTensor> tensors_;
  std::vector<std::vector<std::byte>> memory_;
};

/// A value for every element: some of any sign, exact in every dtype.
float some_value(std::size_t tensor, std::int64_t element);

/// Runs `body` on ranks as threads; gives the message each caught, "" for none.
std::vector<std::string> errors_of(int world, const std::function<void(const Ranks&)>& body);

}  // namespace zero::testing
