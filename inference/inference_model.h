// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device_twin.h"
#include "inference/inference_ops.h"
#include "inference/key_value_cache.h"
#include "inference/model_weights.h"
#include "model/model_config.h"
#include "model/ops.h"

namespace zero {

struct InferenceOptions {
  DType dtype = DType::fp32;  ///< of activations, cache and plain weights: fp32, bf16, fp16
  WeightFormat weights = WeightFormat::plain;  ///< of all matrices, embeddings too
  std::int64_t requests = 1;                   ///< sequences in the cache at a time
  std::int64_t request_tokens = 0;             ///< of the longest sequence; 0: the model's context
  std::int64_t block_tokens = kCacheGroup;     ///< of a block of the cache; 0: of a whole sequence
  std::int64_t cache_tokens = 0;               ///< of all blocks; 0: all requests at their longest
  std::int64_t rows = 256;                     ///< tokens of one pass, at most; 1 to kMostRows
  std::int64_t logit_rows = 0;  ///< tokens of one pass with logits, at most; 0: requests
  static constexpr std::int64_t kMostRows = 512;
};

/// A decoder of any family that continues sequences: forward only, with a key/value cache, on one
/// device. Sums are fp32. The bits of a token's logits depend on the sequence up to it alone: not
/// on how it was cut into passes, nor on the sequences beside it.
class InferenceModel {
 public:
  /// Allocates everything: weights (parameters), cache and activations. Nothing is allocated later.
  /// Works on a planning device. Throws zero::Error naming the option that is out of range.
  InferenceModel(Device& device, const ModelConfig& config, const InferenceOptions& options);
  /// Fills the weights, whose tensors are those of ModelWeights::tensors().
  void load(const ModelWeights::Read& read) { weights_.load(read); }

  /// Consecutive tokens of a sequence, behind those that its slot of the cache holds.
  struct Part {
    std::int64_t slot = 0;
    std::span<const std::uint32_t> tokens{};
    std::int64_t logits = 1;  ///< of that many tokens, the last of them
  };
  /// One pass: appends the parts to their slots, each slot once, and computes the logits that are
  /// wanted. Returns when they are there. Throws zero::Error, before anything is changed, if a
  /// token is outside the vocabulary, if there are more rows, logits or tokens of a sequence than
  /// the options allow, or more than the cache has blocks for.
  void forward(std::span<const Part> parts);
  /// Row `i` of the last pass's logits, fp32 (vocabulary), in the order of parts.
  std::span<const float> logits(std::int64_t i) const;

  /// Where sequences are opened, trimmed and closed.
  KeyValueCache& cache() { return cache_; }
  const InferenceOptions& options() const { return options_; }
  std::int64_t vocabulary() const { return decoder_.vocabulary; }
  Device& device() { return device_; }

 private:
  /// Activations of a pass: (rows, width) of the compute dtype each, but for fp32 figures.
  struct Memory {
    Buffer x, normed, branch, qkv, attended, hidden, activated, statistics, cosines, sines;
    Buffer last_x, last_branch;  // rows whose logits are wanted
    Buffer logits;               // fp32 (logit_rows, vocabulary), of the host
  };
  void allocate();
  void check(std::span<const Part> parts) const;
  void append(std::span<const Part> parts);
  void run();
  void embed();
  void forward_block(std::int64_t i);
  void attention(std::int64_t i);
  void norm(const View& weight, const View& bias, bool add_branch);
  void linear(const ModelWeights::Matrix& matrix, const View& bias, const Buffer& x,
              const Buffer& y);
  void forward_head();
  View rows_of(const Buffer& buffer, std::int64_t width) const {
    return buffer.slice(0, pass_.count() * width);
  }

  Device& device_;
  const DecoderShape decoder_;
  const InferenceOptions options_;
  std::unique_ptr<InferenceOps> ops_;
  std::unique_ptr<Ops> row_ops_;  // norms, activations, rotary embeddings
  ModelWeights weights_;
  KeyValueCache cache_;
  Memory memory_;
  DeviceTwin logits_;                 // of memory_.logits
  Buffer cosine_table_, sine_table_;  // of all positions
  PassRows pass_;                     // of the pass under way
};

/// The model in a Hugging Face folder, with its weights. `device` must outlive it. Throws
/// zero::Error naming file, field or tensor.
std::unique_ptr<InferenceModel> open_inference_model(Device& device, const std::string& folder,
                                                     const InferenceOptions& options);

}  // namespace zero
