// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/engine.h"

namespace zero::toy {

/// A tensor-parallel toy without an embedding: x is scaled, then each layer adds
/// tanh(x up + bias) down + x gate0 + x gate1 + shift. `up` and `bias` are cut by columns, `down`
/// by rows, unevenly; the two gates are like heads of keys: ranks beyond two hold one again, and
/// the first holder adds it. Scale and shift are on every rank of the tensor axis. Sums go over
/// that axis on the communication stream.
class Pair {
 public:
  explicit Pair(Engine& engine);
  ~Pair();  ///< work in flight uses its memory: lets it end
  std::vector<Use> order() const;
  /// Forward and backward of the micro-batch number `batch`, whose data depend on that number
  /// alone;
  /// `*loss` is valid once the compute stream has run.
  void train(std::int64_t batch, float scale, double* loss);
  /// A place for one loss that lives as long as the model.
  double* loss_slot() { return &losses_.emplace_back(0.0); }

 private:
  void load(std::int64_t batch);
  void sum_over_tensor_axis();
  void scale_forward();
  void layer_forward(std::size_t layer);
  void loss_backward(float scale, double* loss);
  void layer_backward(std::size_t layer);
  void scale_backward();

  Engine& engine_;
  UnitId scale_;
  std::vector<UnitId> layers_;
  std::int64_t hidden_ = 0;   // of this rank
  std::vector<bool> firsts_;  // per gate of this rank: it is the first holder
  std::vector<float> x_;      // (rows, width): forward value, then its gradient
  std::vector<float> first_;  // (rows, width): before the scale
  std::vector<float> target_;
  std::vector<float> sum_;                     // (rows, width)
  std::vector<std::vector<float>> inputs_;     // per layer: (rows, width)
  std::vector<std::vector<float>> activated_;  // per layer: (rows, hidden of this rank)
  std::deque<double> losses_;
};

}  // namespace zero::toy
