// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "model/unit_listener.h"

namespace zero {
namespace {

void check_tokens(std::string_view what, View tokens, std::int64_t rows, std::int64_t vocabulary) {
  ZERO_CHECK(tokens.count() == rows, "{}: {} tokens, expected batch x sequence = {}", what,
             tokens.count(), rows);
  const auto ids = tokens.as<std::int32_t>();
  const auto bad = std::find_if(ids.begin(), ids.end(),
                                [&](std::int32_t id) { return id < 0 || id >= vocabulary; });
  ZERO_CHECK(bad == ids.end(), "{}: token {} at position {}, expected 0 to {} (the vocabulary)",
             what, *bad, bad - ids.begin(), vocabulary - 1);
}

BatchShape checked(BatchShape batch, const DecoderShape& decoder) {
  decoder.validate();
  ZERO_CHECK(batch.batch >= 1, "the micro-batch has {} rows, expected at least 1", batch.batch);
  ZERO_CHECK(batch.sequence >= 1 && batch.sequence <= decoder.context,
             "the sequence length is {}, expected 1 to model.context = {}", batch.sequence,
             decoder.context);
  return batch;
}

TensorOptions with_overlap_of(TensorOptions options, const Engine& engine) {
  options.overlap = options.overlap && engine.options().overlap;
  return options;
}

RecomputePlan checked(const RecomputePlan& plan, const DecoderShape& decoder,
                      const Device& device) {
  plan.check(decoder.layers);
  return plan.on(device);
}

DecoderRows rows_of(TensorParallel& tensor, BatchShape batch, const DecoderSplit& split,
                    DType dtype) {
  return {.all = tensor.rows(),
          .own = tensor.own_rows(),
          .sequence = batch.sequence,
          .ranks = tensor.ranks(),
          .rank = tensor.rank(),
          .sequence_parallel = tensor.sequence_parallel(),
          .chunks = tensor.chunks(),
          .logits = VocabularyParallelHead::rows_at_a_time(tensor, split.whole.vocabulary, dtype),
          .logit_columns =
              VocabularyParallelHead::padded_columns(tensor.device(), split.local.vocabulary)};
}

}  // namespace

Decoder::Decoder(Engine& engine, const DecoderShape& whole, BatchShape batch,
                 UnitListener* listener, const TensorOptions& tensor,
                 const RecomputePlan& recompute)
    : batch_(checked(batch, whole)),
      engine_(engine),
      dtype_(engine.options().compute),
      rows_(batch.batch * batch.sequence),
      tensor_(engine.mesh().axis(Axis::tensor), engine.device(), rows_,
              with_overlap_of(tensor, engine)),
      split_(DecoderSplit::of(whole, tensor_.rank(), tensor_.ranks(), DecoderSplit::Tables::cut)),
      listener_(listener),
      ops_(make_ops(engine.device())),
      recompute_(checked(recompute, whole, engine.device())),
      memory_(decoder_, rows_of(tensor_, batch, split_, dtype_), dtype_, recompute_),
      kept_inputs_(engine.device(), memory_.windows(), engine.waits_for_tiers()) {
  UnitListener* const operations = hears_operations() ? listener_ : nullptr;
  ops_->listen(operations);
  tensor_.listen(operations);
  memory_.listen(operations);
  kept_inputs_.listen(operations);
  const DecoderParameters parameters(split_);
  make_layers(parameters);
  register_units(parameters);
  prepare();
  engine_.require_same("layers' kernels", ops_->bits(dtype_));
  engine_.require_same("outputs of norms and GELU",
                       memory_.keeps_outputs() ? "kept" : "computed again");
  // Sums over the tensor group are repeated with the forward that they are a part of.
  if (tensor_.ranks() > 1) {
    engine_.require_same("computed again",
                         recompute_.text() + (recompute_.partition_inputs ? ", shares" : ""));
  }
}

DecoderMemory Decoder::memory_with(const RecomputePlan& recompute) {
  return {decoder_, rows_of(tensor_, batch_, split_, dtype_), dtype_,
          checked(recompute, whole_, engine_.device())};
}

bool Decoder::hears_operations() const {
  return listener_ != nullptr && listener_->hears_operations();
}

void Decoder::notify(UnitId unit, Phase phase) {
  if (listener_ == nullptr) return;
  listener_->unit(engine_.unit_names()[static_cast<std::size_t>(unit.index)], phase);
}

ParameterLease Decoder::enter(UnitId unit, Phase phase) {
  notify(unit, phase);
  return engine_.forward(unit);
}

void Decoder::clear(const View& values) {
  if (listener_ != nullptr) listener_->touches(values, Access::write);
  engine_.device().kernels().zero(engine_.device().compute(), values);
}

void Decoder::copy(const View& from, const View& to) {
  if (listener_ != nullptr) listener_->copies(from, to);
  engine_.device().kernels().convert(engine_.device().compute(), from, to);
}

GradientLease Decoder::enter_backward(UnitId unit) {
  notify(unit, Phase::backward);
  return engine_.backward(unit);
}

void Decoder::prepare() {
  embedding_layer_.prepare(*ops_);
  for (const ColumnParallelLinear& each : {qkv_, hidden_}) each.prepare(*ops_);
  for (const RowParallelLinear& each : {projection_, output_}) each.prepare(*ops_);
  head_.prepare(*ops_);
  for (std::int64_t i = 0; i < decoder_.layers; ++i) ops_->prepare(attention(i));
  if (decoder_.head_norms) ops_->prepare(head_rows());
  // The widest sums over rows: norms and any biases.
  std::int64_t widest = decoder_.width;
  if (qkv_.has_bias()) widest = std::max(widest, decoder_.qkv_width());
  if (hidden_.has_bias()) widest = std::max(widest, decoder_.hidden_width());
  ops_->prepare(matrix(widest));
}

void Decoder::allocate() {
  memory_.allocate(engine_.device(), tensor_.group());
  kept_inputs_.allocate(memory_.kept_input_count(), dtype_);
  tensor_.allocate();
  ops_->allocate_scratch();
  engine_.discard_graphs();
  Device& device = engine_.device();
  const auto mirror = [&](std::int64_t count, DType dtype, std::string_view label) {
    return DeviceMirror(device, count, dtype, MemoryClass::staging, label);
  };
  inputs_ = mirror(rows_, DType::i32, "inputs on the device");
  targets_ = mirror(rows_, DType::i32, "targets on the device");
  loss_ = mirror(1, DType::fp64, "loss on the device");
  const auto fill = [&](const std::optional<RotaryAngles>& angles, DecoderMemory::Rotary table) {
    if (angles) ops_->rotary_table(rotary(), *angles, table.cosines, table.sines);
  };
  fill(decoder_.rotary, memory_.rotary());
  fill(decoder_.local_rotary, memory_.local_rotary());
}

// The blocks' backward, last block first. Before that of a block group's last block all others of
// the group are computed again, the last one within its backward.
template <typename Body>
void Decoder::for_backward(const Body& body) const {
  for (std::int64_t i = decoder_.layers - 1; i >= 0; --i) {
    const bool last = recompute_.last_of_group(i) == i;
    for (std::int64_t j = last ? recompute_.first_of_group(i) : i; j < i; ++j) {
      body(j, Phase::recompute);
    }
    body(i, Phase::backward);
  }
}

// A tied head's unit is the embedding's. Without a tie, head and embedding each add many parts to a
// gradient of their own, the head by chunks of rows, the embedding by tokens: each has a second use
// in backward, so that its window is fp32, as a tied one's; the embedding's first only clears it.
std::vector<Use> Decoder::order() const {
  std::vector<Use> uses{{embedding_, Phase::forward}};
  for (const UnitId unit : blocks_) uses.push_back({unit, Phase::forward});
  if (tied()) {
    uses.push_back({last_, Phase::forward});
    uses.push_back({embedding_, Phase::both});
  } else {
    uses.push_back({last_, Phase::both});
  }
  uses.push_back({last_, Phase::backward});
  for_backward([&](std::int64_t i, Phase phase) { uses.push_back({block(i), phase}); });
  uses.push_back({embedding_, Phase::backward, false});
  if (!tied()) uses.push_back({embedding_, Phase::backward, false});
  return uses;
}

// Four sums of rows per layer, and with sequence parallelism six gathers: forward, the sums of row
// layers and the gathers of column layers; backward, the reverse of each, and the norms' outputs
// again for the weights' gradients. And those of the forward that is repeated.
TrafficCounter Decoder::tensor_traffic() const {
  TrafficCounter sent = embedding_layer_.traffic();
  sent.add(head_.traffic());
  const auto add_norms = [&](const std::vector<SummedGradient>& gradients) {
    std::int64_t count = 0;
    for (const SummedGradient& each : gradients) count += each.count;
    if (count > 0) sent.add(tensor_.sum_traffic(count));
  };
  for (std::int64_t i = 0; i < decoder_.layers; ++i) {
    for (const ColumnParallelLinear* each : {&qkv_, &hidden_}) sent.add(each->traffic());
    for (const RowParallelLinear* each : {&projection_, &output_}) sent.add(each->traffic());
    add_norms(block_gradients());
    sent.add(recompute_traffic(i));
  }
  add_norms(last_gradients());
  return sent;
}

void Decoder::forward(View inputs, Pass pass) {
  kept_inputs_.before_write(0);
  {
    const ParameterLease unit = enter(embedding_);
    embedding_layer_.forward(
        *ops_, unit, {.tokens = inputs, .partial = memory_.partial_embedding(), .x = memory_.x(0)});
    scale_embedding(memory_.x(0));
  }
  branch_sums_.assign(static_cast<std::size_t>(tensor_.chunks()), Event());
  for (std::int64_t i = 0; i < decoder_.layers; ++i) forward_block(i, pass);
}

void Decoder::scale_embedding(const View& x) {
  if (decoder_.embedding_scale == 1) return;
  ops_->scale(x, static_cast<float>(decoder_.embedding_scale));
}

void Decoder::forward_last(const Lease& unit) {
  for (int k = 0; k < tensor_.chunks(); ++k) {
    tensor_.wait(branch_sum(k));
    last_norm_.forward(*ops_, unit, last_operands(), tensor_.own_rows(k));
  }
}

NormLayer::Operands Decoder::last_operands() const {
  const std::int64_t last = decoder_.layers;
  return {.x = memory_.middle(last - 1),
          .delta = memory_.branch(Within::forward),
          .sum = memory_.x(last),
          .y = memory_.normed(),
          .statistics = memory_.statistics(last)};
}

VocabularyParallelHead::Buffers Decoder::head_buffers() const {
  return {.x = memory_.normed(),
          .gathered = head_input(),
          .logits = memory_.logits(),
          .parts = memory_.softmax(),
          .losses = memory_.losses()};
}

template <typename Body>
void Decoder::with_head(const Body& body) {
  if (tied()) {
    {
      const ParameterLease unit = enter(last_);
      forward_last(unit);
    }
    const ParameterLease unit = enter(embedding_);
    body(unit.at(kTokens));
  } else {
    const ParameterLease unit = enter(last_);
    forward_last(unit);
    body(unit.at(head_weight_));
  }
}

void Decoder::train_tied(View targets, float gradient_scale) {
  {
    const ParameterLease unit = enter(last_);
    forward_last(unit);
  }
  const GradientLease unit = enter_backward(embedding_);
  // The embedding's backward adds to both tables; this use writes only one of them.
  if (positions_ != kAbsent && !unit.accumulates()) clear(unit.gradient(positions_));
  head_.train(*ops_, head_buffers(),
              {.weight = unit.parameter(kTokens),
               .gradient = unit.gradient(kTokens),
               .write = unit.accumulates() ? Write::add : Write::overwrite,
               .scale = gradient_scale,
               .partial = memory_.partial(Within::head),
               .dx = memory_.branch(Within::head)},
              targets);
}

void Decoder::train_separate(View targets, float gradient_scale) {
  const GradientLease unit = enter_backward(last_);
  forward_last(unit);
  head_.train(*ops_, head_buffers(),
              {.weight = unit.parameter(head_weight_),
               .gradient = unit.gradient(head_weight_),
               .write = Write::overwrite,
               .scale = gradient_scale,
               .partial = memory_.partial(Within::head),
               .dx = memory_.branch(Within::head)},
              targets);
}

void Decoder::sum_losses(View loss_sum) {
  ops_->sum(memory_.losses(), loss_.of(loss_sum));
  loss_.download(engine_.device().compute(), loss_sum);
}

void Decoder::train(View inputs, View targets, float gradient_scale, View loss_sum) {
  check_tokens("inputs", inputs, rows_, whole_.vocabulary);
  check_tokens("targets", targets, rows_, whole_.vocabulary);
  Stream& stream = engine_.device().compute();
  inputs = inputs_.upload(stream, inputs);
  targets = targets_.upload(stream, targets);
  forward(inputs, Pass::training);
  tied() ? train_tied(targets, gradient_scale) : train_separate(targets, gradient_scale);
  sum_losses(loss_sum);
  backward_norm();
  for_backward([&](std::int64_t i, Phase phase) {
    phase == Phase::recompute ? recompute_block(i) : backward_block(i);
  });
  backward_embedding(inputs);
}

void Decoder::evaluate(View inputs, View targets, View loss_sum) {
  check_tokens("inputs", inputs, rows_, whole_.vocabulary);
  check_tokens("targets", targets, rows_, whole_.vocabulary);
  Stream& stream = engine_.device().compute();
  forward(inputs_.upload(stream, inputs), Pass::evaluation);
  with_head([&, there = targets_.upload(stream, targets)](View weight) {
    head_.evaluate(*ops_, head_buffers(), weight, there);
  });
  sum_losses(loss_sum);
}

void Decoder::backward_norm() {
  const GradientLease unit = enter_backward(last_);
  clear(memory_.dx());
  last_norm_.backward(
      *ops_, unit,
      norm_gradient({0, memory_.x(decoder_.layers), memory_.statistics(decoder_.layers),
                     memory_.branch(Within::head), memory_.dx()},
                    last_norm_));
  finish_norms(unit, last_gradients());
}

void Decoder::clear_embedding(const GradientLease& unit) {
  if (unit.accumulates()) return;
  clear(unit.gradient(kTokens));
  if (positions_ != kAbsent) clear(unit.gradient(positions_));
}

void Decoder::backward_embedding(View inputs) {
  if (!tied()) clear_embedding(enter_backward(embedding_));
  const GradientLease unit = enter_backward(embedding_);
  clear_embedding(unit);
  scale_embedding(memory_.dx());
  embedding_layer_.backward(
      *ops_, unit, {.tokens = inputs, .dx = memory_.dx(), .gathered = memory_.gathered_dx()});
}

}  // namespace zero
