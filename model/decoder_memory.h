// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "collectives/communicator.h"
#include "device/device.h"
#include "device/lifetime_plan.h"
#include "model/activation_lifetimes.h"
#include "model/kept_inputs.h"
#include "model/recompute.h"

namespace zero {

class UnitListener;

/// All activations of one micro-batch of a decoder, in one arena: at offsets that LifetimePlan
/// chooses once, from when each lives (ActivationLifetimes).
///
/// Kept from forward to backward, in elements of the compute dtype: per own row and layer x and
/// middle (C each); per row and layer q, k and v, attended (heads * head_width), hidden (GELU's
/// input, or SwiGLU's gate and operand), each for this rank's heads and intermediate; and a few
/// fp32 figures. GPT-2 on one rank: 10 C; on T ranks 8/T C plus x and middle, which sequence
/// parallelism also divides by T. If the plan keeps outputs, also those of both norms (C per own
/// row each) and of GELU (this rank's intermediate per row). SwiGLU's is computed again with its
/// gradient, GELU's in the place of its input, in the pass of its gradient too. What a
/// RecomputePlan has backward compute again lives in forward while a block uses it, and again from
/// there to the end of the block's backward. With norms of heads q, k and v are kept as they were
/// before these. If the plan has inputs in host memory, x of the blocks that keep it alone lies in
/// InputWindows, which live throughout.
class DecoderMemory {
 public:
  /// `decoder`: the part that this rank holds. `plan`: checked, and of a device
  /// (RecomputePlan::on).
  DecoderMemory(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                const RecomputePlan& plan = {});

  std::int64_t bytes() const { return places_.total(); }
  /// The tensors, their steps and places: "qkv of blocks 1 to 10" is one for each of these blocks.
  const LifetimePlan& places() const { return places_; }
  /// The head's step among those; all earlier ones are of forward, all later ones of backward.
  int head_step() const { return head_; }
  /// Allocates from `group`, the tensor group: registered memory speeds up its collectives.
  void allocate(Device& device, Communicator& group);
  /// Tells `listener`, which must outlive this, of each tensor that is asked for below. Null: none.
  void listen(UnitListener* listener) { listener_ = listener; }
  /// All of it, in bytes, from allocate() on.
  View all() const { return arena_.view(); }

  /// The residual stream entering layer i; x(layers) enters the last norm.
  View x(std::int64_t i) const { return of(BlockActivation::x, i); }
  /// Whether a rank keeps only its share of x(i). x(i) itself is then gathered again for backward.
  bool partitioned(std::int64_t i) const { return partitions_ && plan_.keeps_input_alone(i); }
  View x_share(std::int64_t i) const { return of(BlockActivation::x_share, i); }
  /// What passes through windows, if inputs do: x(i), or this rank's share.
  View kept_input(std::int64_t i) const { return partitioned(i) ? x_share(i) : x(i); }
  std::int64_t kept_input_count() const { return kept_input_count_; }  ///< elements
  const InputWindows& windows() const { return windows_; }
  View middle(std::int64_t i) const { return of(BlockActivation::middle, i); }  ///< after attention
  /// q, k and v: after any rotation of q and k; with norms of heads, before these.
  View qkv(std::int64_t i) const { return of(BlockActivation::qkv, i); }
  /// Norms of heads: q, k and v after norms and rotation, as attention reads them, and the norms'
  /// statistics; forward's and, computed again, attention's.
  View normed_qkv(Within within) const { return of(SharedActivation::normed_qkv, within); }
  View head_statistics(Within within) const {
    return of(SharedActivation::head_statistics, within);
  }
  /// Before the projection.
  View attended(std::int64_t i) const { return of(BlockActivation::attended, i); }
  /// Before the activation.
  View hidden(std::int64_t i) const { return of(BlockActivation::hidden, i); }
  View logsumexp(std::int64_t i) const { return of(BlockActivation::logsumexp, i); }
  /// With norms of branches: what layer i's attention and MLP give, before these, and the norms'
  /// figures; the gradient of one of the two. Without these norms the gradient is dx().
  View projected(std::int64_t i) const { return of(BlockActivation::projected, i); }
  View projected_statistics(std::int64_t i) const {
    return of(BlockActivation::projected_statistics, i);
  }
  View output(std::int64_t i) const { return of(BlockActivation::output, i); }
  View output_statistics(std::int64_t i) const { return of(BlockActivation::output_statistics, i); }
  View dbranch(Within within) const {
    return branch_norms_ ? of(SharedActivation::dbranch, within) : dx();
  }
  /// All rows of it, where backward reads them.
  View gathered_dbranch(Within within) const {
    return gathers_ ? of(SharedActivation::gathered_dbranch, within) : dbranch(within);
  }
  /// Figures of the norm before attention (i = layers: of the last norm).
  View statistics(std::int64_t i) const { return of(BlockActivation::statistics, i); }
  View middle_statistics(std::int64_t i) const { return of(BlockActivation::middle_statistics, i); }

  bool keeps_outputs() const { return plan_.outputs == BlockOutputs::kept; }
  /// The last norm's output.
  View normed() const { return of(SharedActivation::normed, Within::head); }
  /// The outputs of layer i's norms, before attention and before the MLP: in forward, and as
  /// attention's or the MLP's backward computes them again, unless they are kept.
  View normed(std::int64_t i, Within within) const {
    return keeps_outputs() ? of(BlockActivation::normed, i) : of(SharedActivation::normed, within);
  }
  View middle_normed(std::int64_t i, Within within) const {
    return keeps_outputs() ? of(BlockActivation::middle_normed, i)
                           : of(SharedActivation::normed, within);
  }
  /// All rows of a norm's output; itself unless rows are gathered.
  View gathered_normed(const View& normed, Within within) const {
    return gathers_ ? of(SharedActivation::gathered_normed, within) : normed;
  }
  /// A branch's output; in the head and in backward the gradient of a norm's output.
  View branch(Within within) const { return of(SharedActivation::branch, within); }
  /// All rows of branch() before the sum over ranks; itself unless rows are gathered.
  View partial(Within within) const {
    return gathers_ ? of(SharedActivation::partial, within) : branch(within);
  }
  View dx() const { return of(SharedActivation::dx); }  ///< gradient of the residual stream
  /// All rows of dx(), where the embedding's backward reads them.
  View gathered_dx() const { return gathers_ ? of(SharedActivation::gathered_dx) : dx(); }
  /// All rows of x(0) before the sum over ranks; itself unless rows are gathered.
  View partial_embedding() const {
    return gathers_ ? of(SharedActivation::partial_embedding) : x(0);
  }
  View dattended() const { return of(SharedActivation::dattended); }
  /// The activation's output, of layer i. GELU's is computed again, unless kept, where its input
  /// was (`within` Within::mlp); of a gated unit that is first the output's gradient.
  View activated(std::int64_t i, Within within) const;
  View dhidden() const { return of(SharedActivation::dhidden); }  ///< GELU: gradient of hidden
  View dqkv() const { return of(SharedActivation::dqkv); }
  /// Of the rows in one pass of the head.
  View logits() const { return of(SharedActivation::logits); }
  View softmax() const { return of(SharedActivation::softmax); }  ///< fp32: what ranks exchange
  View losses() const { return of(SharedActivation::losses); }    ///< fp64, one per token
  /// fp32: gradients to be summed over ranks: of a block's norms, one after the other, over a
  /// rank's own rows, unless those are all rows; then of the norms of a rank's heads.
  View norm_gradients() const { return of(SharedActivation::norm_gradients); }
  View head_gradients() const { return view(head_gradients_); }  ///< the last of them; may be empty
  /// Tables of rotary embeddings, fp32 (sequence, head_width / 2) each.
  struct Rotary {
    View cosines, sines;
  };
  Rotary rotary() const { return {of(SharedActivation::cosines), of(SharedActivation::sines)}; }
  Rotary local_rotary() const {
    return {of(SharedActivation::local_cosines), of(SharedActivation::local_sines)};
  }
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
  template <typename T>
  using OfBlock = std::array<T, kBlockActivations>;
  template <typename T>
  using OfShared = std::array<T, kSharedActivations>;

  static OfBlock<Slot> block_tensors(const DecoderShape& decoder, const DecoderRows& rows,
                                     DType dtype, const RecomputePlan& plan);
  static OfShared<Slot> shared_tensors(const DecoderShape& decoder, const DecoderRows& rows,
                                       DType dtype);
  void place_windows(const ActivationLifetimes& lives, const OfBlock<Slot>& tensors);
  void place_blocks(const ActivationLifetimes& lives, const OfBlock<Slot>& tensors);
  void place_shared(const ActivationLifetimes& lives, const OfShared<Slot>& tensors);
  View view(const Slot& slot) const;
  View of(BlockActivation tensor, std::int64_t i) const {
    return view(blocks_[static_cast<std::size_t>(tensor)].at(static_cast<std::size_t>(i)));
  }
  View of(SharedActivation tensor, Within within = Within::forward) const {
    return view(shared_[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(within)]);
  }

  const RecomputePlan plan_;
  const InputWindows windows_;
  const bool partitions_;  // inputs that are kept alone
  const bool gathers_;     // rows, in sequence parallelism
  const bool branch_norms_, gated_;
  std::int64_t kept_input_count_ = 0;
  LifetimePlan places_;
  int head_ = 0;
  OfBlock<std::vector<Slot>> blocks_;  // by layer; of x and statistics also the last norm's
  OfShared<std::array<Slot, kWithins>> shared_;
  Slot head_gradients_;              // in norm_gradients
  std::vector<bool> turns_locally_;  // of each layer
  Buffer arena_;
  UnitListener* listener_ = nullptr;
};

}  // namespace zero
