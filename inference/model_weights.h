// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/logical_tensor.h"
#include "inference/inference_ops.h"
#include "model/decoder_shape.h"

namespace zero {

/// The weights of a decoder as inference keeps them: matrices packed in a format, in one copy also
/// where the head is the embedding; biases, norms and the table of positions in the compute dtype.
class ModelWeights {
 public:
  /// Allocates, charged to parameters. `ops` and `device` must outlive the weights.
  ModelWeights(Device& device, InferenceOps& ops, const DecoderShape& decoder, DType dtype,
               WeightFormat format);

  /// Names and shapes of all parameters, as the model registers them.
  static std::vector<LogicalTensor> tensors(const DecoderShape& decoder);
  /// Fills `values`, fp32, with elements of tensors()[tensor] from `begin` on.
  using Read = std::function<void(std::size_t tensor, std::int64_t begin, std::span<float> values)>;
  /// Fills all weights. Throws zero::Error naming the tensor if its format cannot hold an element.
  void load(const Read& read);

  struct Matrix {
    WeightShape shape;
    View values{};
  };
  Matrix embedding() const { return matrix(places_.embedding); }
  /// The embedding, if the head is tied.
  Matrix head() const { return matrix(places_.head); }
  Matrix matrix(std::int64_t block, BlockSlot slot) const { return matrix(place(block, slot)); }
  /// A vector of a block; empty if the family has none.
  View vector(std::int64_t block, BlockSlot slot) const { return values(place(block, slot)); }
  View positions() const { return values(places_.positions); }  ///< (context, width), or empty
  View norm_weight() const { return values(places_.norm_weight); }
  View norm_bias() const { return values(places_.norm_bias); }

 private:
  /// Which of tensors() are what.
  struct Places {
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t embedding = kNone;
    std::size_t positions = kNone;
    std::vector<std::array<std::size_t, kBlockSlots>> blocks{};
    std::size_t norm_weight = kNone;
    std::size_t norm_bias = kNone;
    std::size_t head = kNone;
  };
  Matrix matrix(std::size_t tensor) const { return {shapes_[tensor], buffers_[tensor].view()}; }
  View values(std::size_t tensor) const {
    return tensor == Places::kNone ? View() : buffers_[tensor].view();
  }
  std::size_t place(std::int64_t block, BlockSlot slot) const {
    return places_.blocks[static_cast<std::size_t>(block)][static_cast<std::size_t>(slot)];
  }
  void load_vector(const Read& read, std::size_t tensor);
  void load_matrix(const Read& read, std::size_t tensor);

  Device& device_;
  InferenceOps& ops_;
  Places places_;
  // In the order of tensors().
  std::vector<std::string> names_;
  std::vector<WeightShape> shapes_;  // in = 0: no matrix
  std::vector<Buffer> buffers_;
};

}  // namespace zero
