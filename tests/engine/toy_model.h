// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace zero::toy {

/// Sizes of the toy: odd on purpose.
struct Shape {
  std::int64_t layers = 3;
  std::int64_t width = 24;
  std::int64_t vocabulary = 13;
  std::int64_t rows = 3;  ///< tokens of a micro-batch
};

/// A tiny language model with a tied head, residual tanh layers and a final scale, trained through
/// leases like any custom trainer. All arithmetic is submitted to the compute stream, so the test
/// streams may run it late.
class Model {
 public:
  Model(Engine& engine, const Shape& shape);
  ~Model();  ///< work in flight uses its memory: lets it end
  std::vector<Use> order() const;
  /// Forward and backward of the micro-batch number `batch`; its data depend on that number alone.
  /// `*loss` is valid once the compute stream has run.
  void train(std::int64_t batch, float scale, double* loss);
  /// Forward only, between begin_evaluation() and end_evaluation().
  void evaluate(std::int64_t batch, double* loss);

  /// A place for one loss that lives as long as the model.
  double* loss_slot() { return &losses_.emplace_back(0.0); }

 private:
  void embed(const ParameterLease& lease);
  void layer_forward(std::size_t layer, const ParameterLease& lease);
  void norm_forward(const ParameterLease& lease);
  void head(View embedding, View gradient, float scale, double* loss);
  void load(std::int64_t batch);

  Engine& engine_;
  Shape shape_;
  UnitId embedding_;
  std::vector<UnitId> layers_;
  UnitId scale_;
  std::vector<std::int64_t> tokens_;  // (rows), filled on the compute stream
  std::vector<std::vector<float>>
      inputs_;  // per layer: (rows, width); one more for the scale's input
  std::vector<std::vector<float>> activated_;  // per layer: tanh(...), (rows, width)
  std::deque<double> losses_;
  std::vector<float> x_;  // (rows, width): forward value, then its gradient
};

}  // namespace zero::toy
