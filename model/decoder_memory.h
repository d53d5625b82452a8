// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "collectives/communicator.h"
#include "device/device.h"
#include "model/recompute.h"

namespace zero {

class UnitListener;

/// The rows whose activations a rank holds.
struct DecoderRows {
  std::int64_t all = 0;  ///< of a micro-batch
  std::int64_t own = 0;  ///< of the residual stream: all; with sequence parallelism, a share
  std::int64_t sequence = 0;
  int ranks = 1;  ///< of the tensor group
  int rank = 0;   ///< in that group
  bool sequence_parallel = false;
  std::int64_t logits = 0;         ///< of logits, at a time
  std::int64_t logit_columns = 0;  ///< of a row of logits, with padding
};

/// All activations of one micro-batch of a decoder, in one arena with fixed offsets.
///
/// Kept from forward to backward, in elements of the compute dtype: per own row and layer x and
/// middle (C each); per row and layer q, k and v, attended (heads * head_width), hidden (GELU's
/// input, or SwiGLU's gate and operand), each for this rank's heads and intermediate; and a few
/// fp32 figures. GPT-2 on one rank: 10 C; on T ranks 8/T C plus x and middle, which sequence
/// parallelism also divides by T. If the plan keeps outputs, also those of both norms (C per own
/// row each) and of GELU (this rank's intermediate per row); else all layers share memory for them.
/// SwiGLU's is computed again with its gradient, in the same pass. What a RecomputePlan has
/// backward compute again is not kept: blocks at the same place of their block groups share memory,
/// which the head's logits share too. With norms of heads q, k and v are kept as they were before
/// these, and one more row of them, which the MLP's operands and logits share. All layers share
/// branch, dx, the wide operands, whose memory is also the head's for its logits, and, with
/// sequence parallelism, two operands of all rows, gathered and partial.
class DecoderMemory {
 public:
  /// `decoder`: the part that this rank holds. `plan`: checked, and of a device
  /// (RecomputePlan::on).
  DecoderMemory(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                const RecomputePlan& plan = {});

  std::int64_t bytes() const { return bytes_; }
  /// Allocates from `group`, the tensor group: registered memory speeds up its collectives.
  void allocate(Device& device, Communicator& group);
  /// Tells `listener`, which must outlive this, of each tensor that is asked for below. Null: none.
  void listen(UnitListener* listener) { listener_ = listener; }
  /// All of it, in bytes, from allocate() on.
  View all() const { return arena_.view(); }

  /// The residual stream entering layer i; x(layers) enters the last norm.
  View x(std::int64_t i) const { return view(x_, i); }
  /// Whether a rank keeps only its share of x(i). x(i) itself is in a shared place until the next
  /// such block's forward or the head, and is gathered again for backward.
  bool partitioned(std::int64_t i) const {
    const BlockRecompute again = plan_.block(i);
    return partitions_ && again.whole() && !again.input;
  }
  View x_share(std::int64_t i) const { return view(x_shares_, i); }
  View middle(std::int64_t i) const { return view(middle_, i); }  ///< after attention
  /// q, k and v: after any rotation of q and k; with norms of heads, before these.
  View qkv(std::int64_t i) const { return view(qkv_, i); }
  /// Norms of heads: q, k and v after norms and rotation, as attention reads them, and the norms'
  /// statistics; forward's and, computed again, backward's.
  View normed_qkv() const { return view(normed_qkv_); }
  View head_statistics() const { return view(head_statistics_); }
  View attended(std::int64_t i) const { return view(attended_, i); }  ///< before the projection
  View hidden(std::int64_t i) const { return view(hidden_, i); }      ///< before the activation
  View logsumexp(std::int64_t i) const { return view(logsumexp_, i); }
  /// With norms of branches: what layer i's attention and MLP give, before these, and the norms'
  /// figures; the gradient of one of the two. Without these norms the gradient is dx().
  View projected(std::int64_t i) const { return view(projected_, i); }
  View projected_statistics(std::int64_t i) const { return view(projected_statistics_, i); }
  View output(std::int64_t i) const { return view(outputs_, i); }
  View output_statistics(std::int64_t i) const { return view(output_statistics_, i); }
  View dbranch() const { return view(dbranch_); }
  /// All rows of it, where backward reads them.
  View gathered_dbranch() const { return view(gathered_dbranch_); }
  /// Figures of the norm before attention (i = layers: of the last norm).
  View statistics(std::int64_t i) const { return view(statistics_, i); }
  View middle_statistics(std::int64_t i) const { return view(middle_statistics_, i); }

  bool keeps_outputs() const { return plan_.outputs == BlockOutputs::kept; }
  View normed() const { return view(normed_); }  ///< the last norm's output
  /// The outputs of layer i's norms, before attention and before the MLP.
  View normed(std::int64_t i) const { return keeps_outputs() ? view(normeds_, i) : normed(); }
  View middle_normed(std::int64_t i) const {
    return keeps_outputs() ? view(middle_normeds_, i) : normed();
  }
  View branch() const { return view(branch_); }  ///< a branch's output, or gradient of normed()
  View dx() const { return view(dx_); }          ///< gradient of the residual stream
  /// All rows of a norm's output and of dx(): those themselves, or, with sequence parallelism, one
  /// memory that all share.
  View gathered_normed(const View& normed) const {
    return gathered_normed_.count > 0 ? view(gathered_normed_) : normed;
  }
  View gathered_dx() const { return view(gathered_dx_); }
  /// All rows of branch() before the sum over ranks; separate likewise.
  View partial() const { return view(partial_); }
  /// All rows of x(0) before the sum over ranks; separate likewise.
  View partial_embedding() const { return view(partial_embedding_); }
  View dattended() const { return view(dattended_); }  ///< shares the memory of partial
  /// The activation's output, of layer i.
  View activated(std::int64_t i) const {
    return activations_.empty() ? view(activated_) : view(activations_, i);
  }
  View dhidden() const { return view(dhidden_); }  ///< GELU: gradient of hidden
  View dqkv() const { return view(dqkv_); }
  View logits() const { return view(logits_); }    ///< of the rows in one pass of the head
  View softmax() const { return view(softmax_); }  ///< fp32: the figures that ranks exchange
  View losses() const { return view(losses_); }    ///< fp64, one per token
  /// fp32: gradients to be summed over ranks: of a block's norms, one after the other, over a
  /// rank's own rows, unless those are all rows; then of the norms of a rank's heads.
  View norm_gradients() const { return view(norm_gradients_); }
  View head_gradients() const { return view(head_gradients_); }  ///< the last of them; may be empty
  /// Tables of rotary embeddings, fp32 (sequence, head_width / 2) each.
  struct Rotary {
    View cosines, sines;
  };
  Rotary rotary() const { return {view(cosines_), view(sines_)}; }
  Rotary local_rotary() const { return {view(local_cosines_), view(local_sines_)}; }
  /// Those of a layer.
  Rotary rotary(std::int64_t i) const {
    return turns_locally_.at(static_cast<std::size_t>(i)) ? local_rotary() : rotary();
  }

 private:
  struct Slot {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    DType dtype = DType::fp32;
    std::string_view name{};
    std::int64_t layer = -1;
  };
  void name_slots();
  Slot take(std::int64_t count, DType dtype);
  void take_layer(std::int64_t i, const DecoderShape& decoder, const DecoderRows& rows,
                  DType dtype);
  void take_shared();
  void take_operands(const DecoderShape& decoder, const DecoderRows& rows, DType dtype);
  void take_gradients(const DecoderShape& decoder, const DecoderRows& rows);
  void take_wide(const DecoderShape& decoder, const DecoderRows& rows, DType dtype);
  View view(const Slot& slot) const;
  View view(const std::vector<Slot>& slots, std::int64_t i) const {
    return view(slots.at(static_cast<std::size_t>(i)));
  }

  const RecomputePlan plan_;
  const bool partitions_;  // inputs that are kept alone
  std::vector<Slot> x_, x_shares_, middle_, qkv_, attended_, hidden_, logsumexp_, statistics_;
  std::vector<Slot> middle_statistics_;
  std::vector<Slot> normeds_, middle_normeds_, activations_;  // empty: shared by all layers
  Slot normed_, branch_, dx_, gathered_normed_, gathered_dx_, partial_, partial_embedding_;
  // Of norms of branches; empty: none.
  std::vector<Slot> projected_, projected_statistics_, outputs_, output_statistics_;
  Slot dbranch_, gathered_dbranch_;
  Slot normed_qkv_, head_statistics_, head_gradients_;
  Slot dattended_, activated_, dhidden_, dqkv_, logits_, softmax_, losses_, norm_gradients_;
  Slot cosines_, sines_, local_cosines_, local_sines_;
  std::vector<bool> turns_locally_;  // of each layer
  std::int64_t bytes_ = 0;
  Buffer arena_;
  UnitListener* listener_ = nullptr;
};

}  // namespace zero
