// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "device/device_mirror.h"
#include "inference/inference_options.h"
#include "inference/key_value_cache.h"
#include "inference/model_weights.h"
#include "inference/pass_times.h"
#include "inference/rotary_rows.h"
#include "inference/split_vocabulary.h"
#include "ops/inference_ops.h"
#include "ops/ops.h"

namespace zero {

/// A decoder of any family that continues sequences: forward only, with a key/value cache. Sums are
/// fp32. The bits of a token's logits depend on the sequence up to it, and on the tensor degree,
/// alone: not on how it was cut into passes, nor on the sequences beside it, nor on the shard
/// ranks.
///
/// On the ranks of a mesh, all ranks call forward() together, and
/// - a shard rank keeps its part of all weights, gathers those of each block ahead of use, and
///   computes sequences of its own (ZeRO inference);
/// - the ranks of a tensor group make the same calls, each computes some heads and columns, and all
///   get the same logits, bit for bit. Partial sums over the group are fp32;
/// - replicas know nothing of each other.
class InferenceModel {
 public:
  /// Allocates everything: weights (parameters, gathered), cache and activations. Nothing is
  /// allocated later. Works on a planning device. Throws zero::Error naming the option that is out
  /// of range, or that differs between ranks, or if the mesh serves another device (DeviceClaim).
  /// Collective over the ranks of `mesh`, which must outlive the model; null: this rank alone.
  InferenceModel(Device& device, const DecoderShape& shape, const InferenceOptions& options,
                 Mesh* mesh = nullptr);
  /// Waits for the ranks' exchanges under way.
  ~InferenceModel();
  /// Fills the weights, whose tensors are those of ModelWeights::tensors(). Collective if blocks
  /// are in files.
  void load(const ModelWeights::Source& source) { weights_.load(source); }
  void load(const ModelWeights::Read& read) { weights_.load({read}); }

  /// Consecutive tokens of a sequence, behind those that its slot of the cache holds.
  struct Part {
    std::int64_t slot = 0;
    std::span<const std::uint32_t> tokens{};
    std::int64_t logits = 1;  ///< of that many tokens, the last of them
  };
  /// One pass: appends the parts to their slots, each slot once, and computes the logits that are
  /// wanted. Returns when they are there. Throws zero::Error, before anything is changed or another
  /// rank is told, if a token is outside the vocabulary, if there are more rows, logits or tokens
  /// of a sequence than the options allow, or more than the cache has blocks for.
  ///
  /// On several ranks this waits for the pass of each. No parts is a pass too: the rank works for
  /// the others, and if all have none, nothing is computed. Once a pass has failed, no other can
  /// follow, because the ranks no longer know where each stands. If a file of blocks has failed,
  /// every rank throws the same AgreedError, in this pass and all later ones.
  void forward(std::span<const Part> parts);
  /// Row `i` of the last pass's logits, fp32 (vocabulary), in the order of parts.
  std::span<const float> logits(std::int64_t i) const;

  /// Seconds that compute has waited for other ranks, for their weights, and for blocks in files.
  struct Exposed {
    double last = 0;   ///< in the last pass
    double total = 0;  ///< in all passes
  };
  const Exposed& exposed_seconds() const { return exposed_; }
  /// Of passes in which this rank had rows.
  const PassTimes& pass_times() const { return pass_times_; }
  /// Of blocks in a file (InferenceOptions::block_file).
  BlockReads block_reads() const { return weights_.block_reads(); }

  /// Where sequences are opened, trimmed and closed.
  KeyValueCache& cache() { return cache_; }
  const InferenceOptions& options() const { return options_; }
  std::int64_t vocabulary() const { return split_.whole.vocabulary; }
  Device& device() { return device_; }

 private:
  /// Activations of a pass: (rows, width) of the compute dtype each, but for fp32 statistics.
  struct Activations {
    Buffer partial;  // fp32 (rows, width): to be summed over the tensor group
    Buffer x, normed, branch, qkv, attended, hidden, activated, statistics;
    Buffer last_x, last_branch;  // rows whose logits are wanted
    Buffer logits;               // fp32 (logit_rows, vocabulary), of the host
  };
  void allocate();
  void check(std::span<const Part> parts) const;
  void append(std::span<const Part> parts);
  void run();
  /// Submits the work of a pass that has begun, from its tokens to its logits on the device.
  void compute();
  /// The same by Stream::repeat, with the graph of passes of these sizes.
  void repeat(const PassSizes& sizes);
  void embed();
  void forward_block(std::int64_t i, const ModelWeights::Block& block);
  void attention(std::int64_t i, const ModelWeights::Block& block);
  void norm(const View& x, const View& delta, const View& weight, const View& bias);
  void norm(const View& x, const View& delta, const View& weight, const View& bias, const View& y);
  void norm_branch(const View& weight);
  void summed_linear(const StoredWeight& weight, const View& bias, const Buffer& x);
  void last_norm();
  void forward_head();
  View rows_of(const Buffer& buffer, std::int64_t width) const {
    return buffer.slice(0, pass_.count() * width);
  }

  Device& device_;
  const ModelRanks ranks_;
  const std::list<DeviceClaim> claims_;  // of all communicators
  const DecoderSplit split_;
  const DecoderShape& decoder_ = split_.local;  // what this rank computes
  const InferenceOptions options_;
  std::unique_ptr<InferenceOps> ops_;
  std::unique_ptr<Ops> row_ops_;  // norms, activations, rotary embeddings
  ModelWeights weights_;
  KeyValueCache cache_;
  Activations buffers_;
  DeviceMirror logits_;               // of buffers_.logits
  RotaryRows rotary_, local_rotary_;  // of the layers
  PassRows pass_;                     // of the pass under way
  std::map<PassSizes, std::unique_ptr<CapturedGraph>> graphs_;
  // Of several ranks.
  std::optional<PassExchange> exchange_;
  std::optional<SplitVocabulary> vocabulary_;
  Exposed exposed_;
  PassTimes pass_times_;
  bool failed_ = false;
};

/// Opens a Hugging Face folder. Each rank of `mesh` reads only its part of the weights. `device`
/// and `mesh` must outlive the model. Throws zero::Error naming file, field or tensor, or if the
/// folder holds codes of another format than options.weights.
std::unique_ptr<InferenceModel> open_inference_model(Device& device, const std::string& folder,
                                                     const InferenceOptions& options,
                                                     Mesh* mesh = nullptr);

}  // namespace zero
