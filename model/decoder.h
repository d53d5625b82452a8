// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "architecture/decoder_shape.h"
#include "device/device_mirror.h"
#include "model/block_check.h"
#include "model/decoder_memory.h"
#include "model/kept_inputs.h"
#include "model/layers.h"
#include "model/model.h"
#include "model/parallel_linear.h"
#include "model/recompute.h"
#include "model/tensor_parallel.h"
#include "model/vocabulary_parallel.h"
#include "ops/ops.h"

namespace zero {

/// A decoder-only transformer: embedding, blocks of attention and MLP around a residual stream, a
/// last norm, a head. Families differ only in their DecoderShape. A unit is the embedding (with a
/// tied head), a block, or the last norm (with a separate head). No dropout. Computes in the
/// engine's compute dtype, sums in fp32.
class Decoder : public Model {
 public:
  /// Registers the units; call before engine.seal(). Layers are cut over the tensor axis of
  /// engine.mesh(), whose ranks must receive the same micro-batches. Throws zero::Error if `whole`
  /// or `batch` is out of range or a layer has fewer shares than the axis has ranks. `listener`,
  /// which must outlive the model, is notified of its operations and units. `recompute` must be
  /// equal on the ranks of a tensor group; zero::Error if it does not fit.
  Decoder(Engine& engine, const DecoderShape& whole, BatchShape batch,
          UnitListener* listener = nullptr, const TensorOptions& tensor = {},
          const RecomputePlan& recompute = {});

  std::vector<Use> order() const override;
  void allocate() override;
  std::int64_t activation_bytes() const override { return memory_.bytes() + ops_->scratch_bytes(); }
  const LifetimePlan& activation_places() const override { return memory_.places(); }
  /// The activations as another plan, which must fit, would place them; allocates nothing.
  DecoderMemory memory_with(const RecomputePlan& recompute);
  TrafficCounter tensor_traffic() const override;
  void train(View inputs, View targets, float gradient_scale, View loss_sum) override;
  void evaluate(View inputs, View targets, View loss_sum) override;
  std::string note() const override { return ops_->note(); }
  BatchShape shape() const override { return batch_; }
  std::int64_t vocabulary() const override { return whole_.vocabulary; }
  /// What the head multiplies, as the last evaluate() left it until the next call: batch x sequence
  /// x width, of the compute dtype, on the device; on every rank the rows of the whole micro-batch.
  View head_input() const { return memory_.gathered_normed(memory_.normed(), Within::head); }
  View activations() const override { return memory_.all(); }
  std::vector<std::int64_t> blocks_with_input() const override;
  BlockPass block_pass(std::int64_t i) const override;
  void check_blocks(BlockCheck* check) override { check_ = check; }

 private:
  static constexpr int kTokens = 0;  // in the embedding's unit

  void register_units(const DecoderParameters& parameters);
  void make_layers(const DecoderParameters& parameters);
  void make_ends(const DecoderParameters& parameters);
  ColumnParallelLinear::Options::Shared shared_keys();
  void prepare();
  bool tied() const { return decoder_.head == DecoderShape::Head::tied; }

  /// Whether a forward pass is followed by backward.
  enum class Pass : std::uint8_t { training, evaluation };
  /// Embedding and blocks; leaves the last norm's input in memory_.
  void forward(View inputs, Pass pass);
  void forward_block(std::int64_t i, Pass pass);
  /// Calls body(), or replays the work that body() submitted earlier (Stream::repeat).
  template <typename Body>
  void repeat(Lease& unit, const Body& body);
  /// Whether a norm computes the statistics of its rows, or uses those that forward kept.
  enum class Statistics : std::uint8_t { computed, kept };
  /// A norm and the column-parallel layer that reads its output.
  struct NormedColumn {
    const NormLayer& norm;
    NormLayer::Operands normed;
    const ColumnParallelLinear& column;
    ColumnParallelLinear::Forward columns;
    Statistics statistics = Statistics::computed;
  };
  /// For each chunk k of rows, after the sum of its branch: both forward passes, then then(k).
  template <typename Then>
  void by_chunks(const Lease& unit, const NormedColumn& operands, const Then& then);
  /// A block's forward, within its lease.
  void forward_parts(std::int64_t i, const Lease& unit, Statistics statistics);
  void check_block(std::int64_t i, const Lease& unit);
  // The parts of a block's forward. With computed statistics a norm first adds the branch before.
  void forward_qkv(std::int64_t i, const Lease& unit, Statistics statistics);
  /// q, k and v of block i as attention reads them: normed, if heads are, and turned.
  View attention_operand(std::int64_t i, const Lease& unit, Within within);
  void forward_attention(std::int64_t i, const Lease& unit);
  /// Where a branch's product is written, summed over ranks: `kept` by norms of branches.
  RowParallelLinear::Forward branch_of(const View& x, const View& kept) const;
  /// The norm of a branch, of each chunk of rows after its sum.
  void norm_branch(const Lease& unit, const NormLayer& norm, const View& kept,
                   const View& statistics);
  void forward_projection(std::int64_t i, const Lease& unit);
  /// Calls then(k) after chunk k of rows.
  template <typename Then>
  void forward_hidden(std::int64_t i, const Lease& unit, Statistics statistics, const Then& then);
  /// Of a chunk of rows.
  void forward_output(std::int64_t i, const Lease& unit, int chunk);
  /// Calls body(i, phase) for each use of a block after the head, in order.
  template <typename Body>
  void for_backward(const Body& body) const;
  /// Bytes that this rank sends along the tensor axis to compute block i again.
  TrafficCounter recompute_traffic(std::int64_t i) const;
  /// Keeps this rank's share of x(i), if the plan partitions inputs.
  void keep_share(std::int64_t i);
  /// Makes x(i) whole from the shares.
  void gather_shares(std::int64_t i);
  /// What the plan has backward compute again for block i; of a block group's last no output.
  void recompute(std::int64_t i, const Lease& unit);
  /// The same in a lease of its own, for a block that is not the last of its block group.
  void recompute_block(std::int64_t i);
  /// The last norm, after the sums of the last branch.
  void forward_last(const Lease& unit);
  NormLayer::Operands last_operands() const;
  VocabularyParallelHead::Buffers head_buffers() const;
  /// Calls body(weight of the head) with the last norm's output in memory_.normed().
  template <typename Body>
  void with_head(const Body& body);
  void train_tied(View targets, float gradient_scale);
  void train_separate(View targets, float gradient_scale);
  /// Sums the micro-batch's loss and copies it to the host's `loss_sum`.
  void sum_losses(View loss_sum);
  /// A norm's index in its unit, its input and its forward's statistics, and the gradients of its
  /// output and, added to, of its input.
  struct NormPlace {
    int index = 0;
    View x, statistics;
    View dy, dx;
  };
  void backward_norm();
  void backward_block(std::int64_t i);
  void backward_mlp(std::int64_t i, const GradientLease& unit);
  void backward_attention(std::int64_t i, const GradientLease& unit);
  /// The norm's gradient; that of its input is this norm's alone.
  void backward_branch(const GradientLease& unit, const NormLayer& norm, const NormPlace& place);
  void backward_heads(std::int64_t i, const GradientLease& unit);
  void backward_embedding(View inputs);
  void clear_embedding(const GradientLease& unit);
  NormLayer::Gradient norm_gradient(const NormPlace& norm, const NormLayer& layer) const;
  /// A parameter whose gradient is summed over the tensor group.
  struct SummedGradient {
    int slot = kAbsent;
    std::int64_t count = 0;
  };
  /// Those of a unit, in the order of memory_.norm_gradients().
  std::vector<SummedGradient> summed_gradients(
      std::initializer_list<const NormLayer*> norms,
      std::initializer_list<const HeadNormLayer*> heads) const;
  std::vector<SummedGradient> block_gradients() const {
    return summed_gradients({&norm1_, &norm2_, &projection_norm_, &output_norm_}, {&head_norms_});
  }
  std::vector<SummedGradient> last_gradients() const { return summed_gradients({&last_norm_}, {}); }
  void finish_norms(const GradientLease& unit, const std::vector<SummedGradient>& gradients);

  /// Turns q and k, or their gradients, by layer i's rotary embeddings, if it has any.
  void turn(std::int64_t i, Turn direction, const View& qkv);
  /// Multiplies rows of the embedding, or their gradients, by its scale.
  void scale_embedding(const View& x);

  LinearShape linear(std::int64_t in, std::int64_t out) const {
    return {.rows = rows_,
            .in = in,
            .out = out,
            .layout = decoder_.layout,
            .dtype = dtype_,
            .weight_gradient = dtype_};
  }
  MatrixShape matrix(std::int64_t columns) const { return {rows_, columns, dtype_}; }
  MatrixShape own_rows() const { return {tensor_.own_rows(), decoder_.width, dtype_}; }
  AttentionShape attention(std::int64_t i) const {
    return {.batch = batch_.batch,
            .sequence = batch_.sequence,
            .heads = decoder_.heads,
            .head_width = decoder_.head_width,
            .dtype = dtype_,
            .kv_heads = decoder_.kv_heads,
            .window = decoder_.window_of(i),
            .scale = static_cast<float>(decoder_.score_scale)};
  }
  RotaryShape rotary() const {
    return {batch_.batch,        batch_.sequence,      decoder_.heads + decoder_.kv_heads,
            decoder_.head_width, decoder_.qkv_width(), dtype_};
  }
  HeadNormShape head_rows() const {
    return {rows_, decoder_.heads, decoder_.kv_heads, decoder_.head_width, dtype_};
  }
  Event& branch_sum(int chunk) { return branch_sums_[static_cast<std::size_t>(chunk)]; }
  UnitId block(std::int64_t i) const { return blocks_[static_cast<std::size_t>(i)]; }

  /// Lease a unit and notify the listener.
  ParameterLease enter(UnitId unit, Phase phase = Phase::forward);
  GradientLease enter_backward(UnitId unit);
  void notify(UnitId unit, Phase phase);
  /// Whether the listener must hear of each operation, so that no pass can be replayed.
  bool hears_operations() const;

  // On the compute stream, and told to the listener.
  void clear(const View& values);
  void copy(const View& from, const View& to);

  const BatchShape batch_;
  Engine& engine_;
  const DType dtype_;
  const std::int64_t rows_;  // batch * sequence
  TensorParallel tensor_;
  const DecoderSplit split_;
  const DecoderShape& whole_ = split_.whole;    // of the whole tensor group
  const DecoderShape& decoder_ = split_.local;  // of this rank
  UnitId embedding_;
  std::vector<UnitId> blocks_;
  UnitId last_;  // the last norm, with a separate head
  int positions_ = kAbsent;
  int head_weight_ = kAbsent;  // in last_
  VocabularyParallelEmbedding embedding_layer_;
  NormLayer norm1_, norm2_, last_norm_;
  NormLayer projection_norm_, output_norm_;  // if the shape has them
  HeadNormLayer head_norms_;                 // if the shape has them
  ColumnParallelLinear qkv_, hidden_;
  RowParallelLinear projection_, output_;
  VocabularyParallelHead head_;
  UnitListener* listener_;       // may be null
  BlockCheck* check_ = nullptr;  // may be null
  std::unique_ptr<Ops> ops_;
  const RecomputePlan recompute_;
  DecoderMemory memory_;
  KeptInputs kept_inputs_;
  DeviceMirror inputs_, targets_, loss_;  // of the callers' host memory
  std::vector<Event> branch_sums_;        // of memory_.branch(), one for each chunk of rows
};

}  // namespace zero
