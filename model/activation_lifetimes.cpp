// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/activation_lifetimes.h"

#include <utility>

namespace zero {
namespace {

/// Goes through a micro-batch as Decoder does, function by function.
class MicroBatchWalk {
 public:
  MicroBatchWalk(const DecoderShape& decoder, const DecoderRows& rows, const RecomputePlan& plan)
      : decoder_(decoder),
        gathers_(rows.sequence_parallel),
        in_turns_(rows.chunks > 1),
        keeps_outputs_(plan.outputs == BlockOutputs::kept) {
    lives_.runs = block_runs(decoder.layers, plan,
                             plan.partition_inputs && rows.ranks > 1 && !rows.sequence_parallel);
    lives_.blocks.resize(lives_.runs.size());
  }

  ActivationLifetimes walk() {
    forward();
    head();
    for (std::size_t r = lives_.runs.size(); r-- > 0;) {
      if (ends_group(r)) {
        for (std::size_t j = first_of_group(r); j <= r; ++j) recompute(j);
      }
      backward(r);
    }
    step();
    read(Shared::dx);
    if (gathers_) write(Shared::gathered_dx);
    add_tables();
    lives_.last = step_;
    return std::move(lives_);
  }

 private:
  using Block = BlockActivation;
  using Shared = SharedActivation;
  using Spans = ActivationLifetimes::Spans;

  void step() { ++step_; }
  /// A new step, unless chunks of rows interleave it with the one before.
  void next_of_chunk() {
    if (!in_turns_) step();
  }

  const BlockRun& run(std::size_t r) const { return lives_.runs[r]; }
  bool ends_group(std::size_t r) const {
    return r + 1 == lives_.runs.size() || !run(r + 1).again.input;
  }
  std::size_t first_of_group(std::size_t r) const {
    while (run(r).again.input) --r;
    return r;
  }
  Spans& spans(std::size_t r, Block tensor) {
    return lives_.blocks[r][static_cast<std::size_t>(tensor)];
  }
  Spans& spans(Shared tensor, Within within) {
    return lives_.shared[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(within)];
  }
  /// The values of the last write live on until now.
  void read(Spans& spans) { spans.back().last = step_; }
  void read(std::size_t r, Block tensor) { read(spans(r, tensor)); }
  void read(Shared tensor, Within within = Within::forward) { read(spans(tensor, within)); }
  void write(Shared tensor, Within within = Within::forward) {
    Spans& own = spans(tensor, within);
    if (own.empty() || own.back().last < step_) own.push_back({step_, step_});
  }
  /// What a pass has written of a block lives on in it.
  void write(std::size_t r, Block tensor) {
    Spans& own = spans(r, tensor);
    if (own.empty() || own.back().last < pass_) own.push_back({step_, step_});
    own.back().last = step_;
  }

  /// A pass over a run of several blocks writes what they keep for backward block by block: that
  /// of the first blocks lives throughout.
  void begin_pass(std::size_t r, bool forward) {
    step();
    pass_ = step_;
    if (run(r).count == 1 || (!forward && !run(r).grouped)) return;
    for (std::size_t t = 0; t < kBlockActivations; ++t) {
      const auto tensor = static_cast<Block>(t);
      if (tensor == Block::x_share && !run(r).partitioned) continue;
      if (run(r).computes_again(tensor) != forward) write(r, tensor);
    }
  }
  /// And while backward uses that of the last blocks.
  void end_backward(std::size_t r) {
    if (run(r).count == 1) return;
    for (std::size_t t = 0; t < kBlockActivations; ++t) {
      const auto tensor = static_cast<Block>(t);
      if (!run(r).shares(tensor) && !spans(r, tensor).empty()) read(r, tensor);
    }
  }

  void write_branch(Within within) {
    if (gathers_) write(Shared::partial, within);
    write(Shared::branch, within);
  }
  void read_branch(Within within) {
    if (gathers_) read(Shared::partial, within);
    read(Shared::branch, within);
  }
  /// A norm's output, `kept` if blocks keep it, and all rows of it.
  void write_normed(std::size_t r, Block kept, Within within) {
    keeps_outputs_ ? write(r, kept) : write(Shared::normed, within);
    if (gathers_ && within == Within::forward) write(Shared::gathered_normed, within);
  }
  void read_normed(std::size_t r, Block kept, Within within) {
    keeps_outputs_ ? read(r, kept) : read(Shared::normed, within);
    if (gathers_ && within == Within::forward) read(Shared::gathered_normed, within);
  }
  bool keeps_activated() const { return keeps_outputs_ && !decoder_.gated(); }

  void forward() {
    write(0, Block::x);
    if (gathers_) write(Shared::partial_embedding);
    for (std::size_t r = 0; r < lives_.runs.size(); ++r) {
      if (r > 0) begin_pass(r, true);
      forward_qkv(r, r > 0, true);
      if (run(r).partitioned) write(r, Block::x_share);
      forward_attention(r);
      forward_projection(r);
      forward_hidden(r, true, true);
    }
    step();
    read(lives_.runs.size() - 1, Block::middle);
    read_branch(Within::forward);
    for (const Shared tensor : {Shared::last_x, Shared::last_statistics}) write(tensor);
    write(Shared::normed, Within::head);
  }

  /// `adds`: x is the block before's middle and its branch. `computes`: statistics are not kept.
  void forward_qkv(std::size_t r, bool adds, bool computes) {
    step();
    if (adds) {
      read(r - 1, Block::middle);
      if (run(r).count > 1) write(r, Block::middle);
      read_branch(Within::forward);
      write(r, Block::x);
    } else {
      read(r, Block::x);
    }
    computes ? write(r, Block::statistics) : read(r, Block::statistics);
    write_normed(r, Block::normed, Within::forward);
    next_of_chunk();
    read_normed(r, Block::normed, Within::forward);
    write(r, Block::qkv);
  }

  void attention_operand(std::size_t r, Within within) {
    read(r, Block::qkv);
    if (!decoder_.head_norms) return;
    write(Shared::normed_qkv, within);
    write(Shared::head_statistics, within);
  }

  void forward_attention(std::size_t r) {
    step();
    attention_operand(r, Within::forward);
    write(r, Block::attended);
    write(r, Block::logsumexp);
  }

  void forward_projection(std::size_t r) {
    step();
    read(r, Block::attended);
    if (decoder_.branch_norms) {
      write(r, Block::projected);
      write(r, Block::projected_statistics);
    }
    write_branch(Within::forward);
  }

  void write_activated(std::size_t r) {
    keeps_activated() ? write(r, Block::activated) : write(Shared::activated);
  }
  void forward_hidden(std::size_t r, bool computes, bool output) {
    step();
    if (computes) {
      read(r, Block::x);
      read_branch(Within::forward);
      write(r, Block::middle);
      write(r, Block::middle_statistics);
    } else {
      read(r, Block::middle);
      read(r, Block::middle_statistics);
    }
    write_normed(r, Block::middle_normed, Within::forward);
    next_of_chunk();
    read_normed(r, Block::middle_normed, Within::forward);
    write(r, Block::hidden);
    if (!decoder_.gated()) write_activated(r);
    if (!output) return;
    next_of_chunk();
    if (decoder_.gated()) {
      read(r, Block::hidden);
      write_activated(r);
    } else {
      keeps_activated() ? read(r, Block::activated) : read(Shared::activated);
    }
    if (decoder_.branch_norms) {
      write(r, Block::output);
      write(r, Block::output_statistics);
    }
    write_branch(Within::forward);
  }

  /// The head, the sum of losses, and the backward of the last norm.
  void head() {
    step();
    lives_.head = step_;
    read(Shared::normed, Within::head);
    if (gathers_) write(Shared::gathered_normed, Within::head);
    for (const Shared tensor : {Shared::logits, Shared::softmax, Shared::losses}) write(tensor);
    write_branch(Within::head);
    step();
    read(Shared::losses);
    step();
    write(Shared::dx);
    for (const Shared tensor : {Shared::last_x, Shared::last_statistics}) read(tensor);
    read(Shared::branch, Within::head);
    if (gathers_) write(Shared::norm_gradients);
  }

  void recompute(std::size_t r) {
    const BlockRecompute again = run(r).again;
    if (!again.any()) return;
    begin_pass(r, false);
    if (run(r).partitioned) {
      read(r, Block::x_share);
      write(r, Block::x);
    }
    if (again.qkv) forward_qkv(r, again.input, again.input);
    if (again.attended) forward_attention(r);
    if (again.middle) forward_projection(r);
    const bool output = decoder_.branch_norms || !ends_group(r);
    if (again.hidden) forward_hidden(r, again.middle, output);
  }

  void backward(std::size_t r) {
    step();
    write(Shared::norm_gradients);
    backward_mlp(r);
    backward_attention(r);
    step();
    read(Shared::norm_gradients);
    end_backward(r);
  }

  /// The gradient of a branch, where a product reads it: `gives` is that product's result.
  template <typename Gives>
  void backward_branch(std::size_t r, Within within, Block branch, Block statistics,
                       const Gives& gives) {
    if (decoder_.branch_norms) {
      step();
      read(r, branch);
      read(r, statistics);
      write(Shared::dbranch, within);
    }
    step();
    if (decoder_.branch_norms) read(Shared::dbranch, within);
    if (gathers_) write(Shared::gathered_dbranch, within);
    gives();
  }
  void read_dbranch(Within within) {
    if (gathers_) {
      read(Shared::gathered_dbranch, within);
    } else if (decoder_.branch_norms) {
      read(Shared::dbranch, within);
    }
  }
  /// A column-parallel layer's backward and its norm's; reads(): its output's gradient.
  template <typename Reads>
  void backward_column(std::size_t r, Within within, Block x, Block statistics, Block normed,
                       const Reads& reads) {
    step();
    read(r, x);
    read(r, statistics);
    keeps_outputs_ ? read(r, normed) : write(Shared::normed, within);
    step();
    read_normed(r, normed, within);
    if (gathers_) write(Shared::gathered_normed, within);
    reads();
    write_branch(within);
    step();
    read(r, x);
    read(r, statistics);
    read(Shared::branch, within);
  }

  void backward_mlp(std::size_t r) {
    const bool gated = decoder_.gated();
    const auto read_dhidden = [&] { gated ? read(r, Block::hidden) : read(Shared::dhidden); };
    backward_branch(r, Within::mlp, Block::output, Block::output_statistics, [&] {
      gated ? write(Shared::activated, Within::mlp) : write(Shared::dhidden);
    });
    step();
    read(r, Block::hidden);  // GELU's output, unless kept, takes its place
    read_dhidden();
    for (int each = 0; each < 2; ++each) {
      if (gated) read(Shared::activated, Within::mlp);
      if (keeps_activated()) read(r, Block::activated);
      if (!gated && !keeps_activated()) read(r, Block::hidden);
      if (each == 0) step();
    }
    read_dbranch(Within::mlp);
    backward_column(r, Within::mlp, Block::middle, Block::middle_statistics, Block::middle_normed,
                    read_dhidden);
  }

  void backward_attention(std::size_t r) {
    backward_branch(r, Within::attention, Block::projected, Block::projected_statistics,
                    [&] { write(Shared::dattended); });
    step();
    read(r, Block::attended);
    read_dbranch(Within::attention);
    step();
    attention_operand(r, Within::attention);
    read(r, Block::attended);
    read(r, Block::logsumexp);
    read(Shared::dattended);
    write(Shared::dqkv);
    if (decoder_.head_norms) {
      step();
      read(r, Block::qkv);
      read(Shared::head_statistics, Within::attention);
    }
    backward_column(r, Within::attention, Block::x, Block::statistics, Block::normed,
                    [&] { read(Shared::dqkv); });
  }

  /// From before the micro-batch until behind it.
  void add_tables() {
    if (decoder_.rotary) {
      for (const Shared table : {Shared::cosines, Shared::sines})
        spans(table, Within::forward) = {{0, step_}};
    }
    if (decoder_.local_rotary) {
      for (const Shared table : {Shared::local_cosines, Shared::local_sines})
        spans(table, Within::forward) = {{0, step_}};
    }
  }

  const DecoderShape& decoder_;
  const bool gathers_;        // rows, in sequence parallelism
  const bool in_turns_;       // chunks of rows
  const bool keeps_outputs_;  // of norms and GELU
  int step_ = 0;
  int pass_ = 0;  // its first step
  ActivationLifetimes lives_;
};

}  // namespace

ActivationLifetimes ActivationLifetimes::of(const DecoderShape& decoder, const DecoderRows& rows,
                                            const RecomputePlan& plan) {
  return MicroBatchWalk(decoder, rows, plan).walk();
}

}  // namespace zero
