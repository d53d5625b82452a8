// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// One block of a decoder, forward and backward.
#include "model/decoder.h"
#include "partition/tensor_slice.h"

namespace zero {

// A block's pass is the same work in every micro-batch and can be replayed, except over a tensor
// group, where events of the communication stream lie between its parts, or with a listener that
// must be notified of each part.
template <typename Body>
void Decoder::repeat(Lease& unit, const Body& body) {
  if (tensor_.ranks() > 1 || hears_operations()) {
    body();
  } else {
    unit.repeat(std::cref(body));
  }
}

// With sequence parallelism a chunk's rows are gathered while the previous chunk is computed.
template <typename Then>
void Decoder::by_chunks(const Lease& unit, const NormedColumn& o, const Then& then) {
  std::vector<Event> gathered(branch_sums_.size());
  const auto ready = [&](int k) {
    tensor_.wait(branch_sum(k));
    if (o.statistics == Statistics::kept) {
      o.norm.apply(*ops_, unit, o.normed, tensor_.own_rows(k));
    } else {
      o.norm.forward(*ops_, unit, o.normed, tensor_.own_rows(k));
    }
    gathered[static_cast<std::size_t>(k)] = o.column.gather(o.columns, k);
  };
  const int chunks = tensor_.chunks();
  const int lag = tensor_.sequence_parallel() ? 1 : 0;
  for (int k = 0; k < chunks + lag; ++k) {
    if (k < chunks) ready(k);
    if (k < lag) continue;
    const int chunk = k - lag;
    tensor_.wait(gathered[static_cast<std::size_t>(chunk)]);
    o.column.forward(*ops_, unit, o.columns, tensor_.cut().chunk(chunk));
    then(chunk);
  }
}

// From one attention to the next every operation works on single rows: while one chunk is summed
// over ranks, the others are computed, across layers.
void Decoder::forward_block(std::int64_t i, Pass pass) {
  ParameterLease unit = enter(block(i));
  kept_inputs_.before_write(i);
  repeat(unit, [&] { forward_parts(i, unit, Statistics::computed); });
  if (pass != Pass::training) return;
  check_block(i, unit);
  if (memory_.windows().has(i)) kept_inputs_.leave(i, memory_.kept_input(i));
}

void Decoder::forward_parts(std::int64_t i, const Lease& unit, Statistics statistics) {
  forward_qkv(i, unit, statistics);
  keep_share(i);
  forward_attention(i, unit);
  forward_projection(i, unit);
  forward_hidden(i, unit, Statistics::computed, [&](int k) { forward_output(i, unit, k); });
  if (decoder_.branch_norms) {
    norm_branch(unit, output_norm_, memory_.output(i), memory_.output_statistics(i));
  }
}

void Decoder::forward_qkv(std::int64_t i, const Lease& unit, Statistics statistics) {
  const DecoderMemory& m = memory_;
  // x(i) = middle(i - 1) + the branch of that layer's MLP; x(0) is complete.
  const bool complete = i == 0 || statistics == Statistics::kept;
  const NormLayer::Operands norm{.x = complete ? m.x(i) : m.middle(i - 1),
                                 .delta = complete ? View() : m.branch(Within::forward),
                                 .sum = complete ? View() : m.x(i),
                                 .y = m.normed(i, Within::forward),
                                 .statistics = m.statistics(i)};
  const ColumnParallelLinear::Forward qkv{
      .x = norm.y, .gathered = m.gathered_normed(norm.y, Within::forward), .y = m.qkv(i)};
  by_chunks(unit, {norm1_, norm, qkv_, qkv, statistics}, [](int) {});
  if (!decoder_.head_norms) turn(i, Turn::forward, m.qkv(i));
}

void Decoder::turn(std::int64_t i, Turn direction, const View& qkv) {
  if (!decoder_.rotary) return;
  const DecoderMemory::Rotary table = memory_.rotary(i);
  ops_->rotary(rotary(), direction, qkv, table.cosines, table.sines);
}

// Norms of heads need their operands in backward: their outputs are computed again there.
View Decoder::attention_operand(std::int64_t i, const Lease& unit, Within within) {
  const DecoderMemory& m = memory_;
  if (!decoder_.head_norms) return m.qkv(i);
  head_norms_.forward(
      *ops_, unit,
      {.x = m.qkv(i), .y = m.normed_qkv(within), .statistics = m.head_statistics(within)});
  turn(i, Turn::forward, m.normed_qkv(within));
  return m.normed_qkv(within);
}

void Decoder::forward_attention(std::int64_t i, const Lease& unit) {
  const DecoderMemory& m = memory_;
  ops_->attention_forward(attention(i), attention_operand(i, unit, Within::forward), m.attended(i),
                          m.logsumexp(i));
}

void Decoder::forward_projection(std::int64_t i, const Lease& unit) {
  const DecoderMemory& m = memory_;
  for (int k = 0; k < tensor_.chunks(); ++k) {
    branch_sum(k) = projection_.forward(
        *ops_, unit, branch_of(m.attended(i), decoder_.branch_norms ? m.projected(i) : View()), k);
  }
  if (decoder_.branch_norms) {
    norm_branch(unit, projection_norm_, m.projected(i), m.projected_statistics(i));
  }
}

RowParallelLinear::Forward Decoder::branch_of(const View& x, const View& kept) const {
  const DecoderMemory& m = memory_;
  const View partial = m.partial(Within::forward);
  if (kept.empty()) return {.x = x, .partial = partial, .y = m.branch(Within::forward)};
  return {.x = x, .partial = tensor_.sequence_parallel() ? partial : kept, .y = kept};
}

// Within the block's lease, which has the norm's weight: the next block waits for no sum.
void Decoder::norm_branch(const Lease& unit, const NormLayer& norm, const View& kept,
                          const View& statistics) {
  const NormLayer::Operands operands{.x = kept,
                                     .delta = {},
                                     .sum = {},
                                     .y = memory_.branch(Within::forward),
                                     .statistics = statistics};
  for (int k = 0; k < tensor_.chunks(); ++k) {
    tensor_.wait(branch_sum(k));
    norm.forward(*ops_, unit, operands, tensor_.own_rows(k));
    branch_sum(k) = {};
  }
}

template <typename Then>
void Decoder::forward_hidden(std::int64_t i, const Lease& unit, Statistics statistics,
                             const Then& then) {
  const DecoderMemory& m = memory_;
  const bool complete = statistics == Statistics::kept;
  const NormLayer::Operands norm{.x = complete ? m.middle(i) : m.x(i),
                                 .delta = complete ? View() : m.branch(Within::forward),
                                 .sum = complete ? View() : m.middle(i),
                                 .y = m.middle_normed(i, Within::forward),
                                 .statistics = m.middle_statistics(i)};
  const ColumnParallelLinear::Forward up{
      .x = norm.y,
      .gathered = m.gathered_normed(norm.y, Within::forward),
      .y = m.hidden(i),
      .gelu = decoder_.gated() ? View() : m.activated(i, Within::forward)};
  by_chunks(unit, {norm2_, norm, hidden_, up, statistics}, then);
}

void Decoder::forward_output(std::int64_t i, const Lease& unit, int chunk) {
  const DecoderMemory& m = memory_;
  const View activated = m.activated(i, Within::forward);
  if (decoder_.gated()) {
    const Slices::Range rows = tensor_.cut().chunk(chunk);
    ops_->gated_forward({rows.count, decoder_.intermediate, dtype_}, decoder_.gate(),
                        TensorParallel::rows_of(m.hidden(i), rows, decoder_.hidden_width()),
                        TensorParallel::rows_of(activated, rows, decoder_.intermediate));
  }
  branch_sum(chunk) = output_.forward(
      *ops_, unit, branch_of(activated, decoder_.branch_norms ? m.output(i) : View()), chunk);
}

void Decoder::keep_share(std::int64_t i) {
  if (!memory_.partitioned(i)) return;
  const TensorSlice::Range mine = even_range(memory_.x(i).count(), tensor_.rank(), tensor_.ranks());
  copy(memory_.x(i).slice(mine.begin, mine.count), memory_.x_share(i));
}

void Decoder::gather_shares(std::int64_t i) {
  if (!memory_.partitioned(i)) return;
  const View x = memory_.x(i);
  std::vector<Slices::Range> ranges;
  for (int rank = 0; rank < tensor_.ranks(); ++rank) {
    const TensorSlice::Range range = even_range(x.count(), rank, tensor_.ranks());
    ranges.push_back({range.begin, range.count});
  }
  const Slices::Range mine = ranges[static_cast<std::size_t>(tensor_.rank())];
  copy(memory_.x_share(i), x.slice(mine.begin, mine.count));
  tensor_.wait(tensor_.gather(x, std::move(ranges), "kept input"));
}

// The same operations on the same operands as forward's, so the same bits; where forward took a
// norm's input from a sum that is kept, the kept statistics take the sum's place.
void Decoder::recompute(std::int64_t i, const Lease& unit) {
  const BlockRecompute again = recompute_.block(i);
  const auto statistics = [](bool computed) {
    return computed ? Statistics::computed : Statistics::kept;
  };
  gather_shares(i);
  if (again.qkv) forward_qkv(i, unit, statistics(again.input));
  if (again.attended) forward_attention(i, unit);
  if (again.middle) forward_projection(i, unit);
  // A block whose output no later block reads again needs no output, but for its norm's backward.
  const bool output = decoder_.branch_norms || recompute_.last_of_group(i) != i;
  if (again.hidden) {
    forward_hidden(i, unit, statistics(again.middle), [&](int k) {
      if (output) forward_output(i, unit, k);
    });
    if (decoder_.branch_norms) {
      norm_branch(unit, output_norm_, memory_.output(i), memory_.output_statistics(i));
    }
  }
}

void Decoder::recompute_block(std::int64_t i) {
  ParameterLease unit = enter(block(i), Phase::recompute);
  kept_inputs_.before_use(i);
  repeat(unit, [&] { recompute(i, unit); });
}

TrafficCounter Decoder::recompute_traffic(std::int64_t i) const {
  const BlockRecompute again = recompute_.block(i);
  TrafficCounter sent;
  if (memory_.partitioned(i)) {
    sent.add(Operation::all_gather,
             Communicator::sent_bytes(Operation::all_gather, own_rows().count() * size_of(dtype_),
                                      tensor_.ranks()));
  }
  if (again.qkv) sent.add(tensor_.gather_traffic(decoder_.width, dtype_));
  if (again.middle) sent.add(tensor_.sum_traffic(decoder_.width, dtype_));
  if (again.hidden) sent.add(tensor_.gather_traffic(decoder_.width, dtype_));
  if (recompute_.last_of_group(i) != i || (again.hidden && decoder_.branch_norms)) {
    sent.add(tensor_.sum_traffic(decoder_.width, dtype_));
  }
  return sent;
}

void Decoder::backward_block(std::int64_t i) {
  const bool again = recompute_.block(i).any() && recompute_.last_of_group(i) == i;
  notify(block(i), again ? Phase::recompute : Phase::backward);
  GradientLease unit = engine_.backward(block(i));
  kept_inputs_.before_use(i);
  repeat(unit, [&] {
    if (again) {
      recompute(i, unit);
      notify(block(i), Phase::backward);
    }
    backward_mlp(i, unit);
    backward_attention(i, unit);
    finish_norms(unit, block_gradients());
  });
  if (memory_.windows().has(i)) kept_inputs_.used(i, memory_.kept_input(i));
}

// Turns dx from the gradient of the block's output into that of its middle.
void Decoder::backward_mlp(std::int64_t i, const GradientLease& unit) {
  const DecoderMemory& m = memory_;
  const bool gated = decoder_.gated();
  const View dbias = hidden_.bias_gradient(unit);
  if (decoder_.branch_norms) {
    backward_branch(unit, output_norm_,
                    {3, m.output(i), m.output_statistics(i), m.dx(), m.dbranch(Within::mlp)});
  }
  const View dhidden = gated ? m.hidden(i) : m.dhidden();
  const View activated = m.activated(i, Within::mlp);
  const View dy = m.gathered_dbranch(Within::mlp);
  const RowParallelLinear::BackwardInput down{
      .dy = m.dbranch(Within::mlp), .gathered = dy, .dx = gated ? activated : dhidden};
  if (gated) {
    output_.backward_input(*ops_, unit, down);
    ops_->gated_backward(matrix(decoder_.intermediate), decoder_.gate(), m.hidden(i), activated);
  } else {
    const View again = m.keeps_outputs() ? View() : activated;
    output_.backward_input(*ops_, unit, down, {.z = m.hidden(i), .x = again, .dbias = dbias});
  }
  output_.backward_parameters(*ops_, unit, activated, dy);
  const View normed = m.middle_normed(i, Within::mlp);
  if (!m.keeps_outputs()) {
    norm2_.apply(*ops_, unit,
                 {.x = m.middle(i),
                  .delta = {},
                  .sum = {},
                  .y = normed,
                  .statistics = m.middle_statistics(i)});
  }
  hidden_.backward(*ops_, unit,
                   {.x = normed,
                    .gathered = m.gathered_normed(normed, Within::mlp),
                    .dy = dhidden,
                    .partial = m.partial(Within::mlp),
                    .dx = m.branch(Within::mlp),
                    .dbias = gated ? dbias : View()});
  norm2_.backward(
      *ops_, unit,
      norm_gradient({1, m.middle(i), m.middle_statistics(i), m.branch(Within::mlp), m.dx()},
                    norm2_));
}

// Turns dx from the gradient of the block's middle into that of its input.
void Decoder::backward_attention(std::int64_t i, const GradientLease& unit) {
  const DecoderMemory& m = memory_;
  if (decoder_.branch_norms) {
    backward_branch(
        unit, projection_norm_,
        {2, m.projected(i), m.projected_statistics(i), m.dx(), m.dbranch(Within::attention)});
  }
  const View dy = m.gathered_dbranch(Within::attention);
  projection_.backward_input(
      *ops_, unit, {.dy = m.dbranch(Within::attention), .gathered = dy, .dx = m.dattended()});
  projection_.backward_parameters(*ops_, unit, m.attended(i), dy);
  ops_->attention_backward(attention(i), attention_operand(i, unit, Within::attention),
                           m.attended(i), m.logsumexp(i), m.dattended(), m.dqkv());
  turn(i, Turn::backward, m.dqkv());
  if (decoder_.head_norms) backward_heads(i, unit);
  const View normed = m.normed(i, Within::attention);
  if (!m.keeps_outputs()) {
    norm1_.apply(*ops_, unit,
                 {.x = m.x(i), .delta = {}, .sum = {}, .y = normed, .statistics = m.statistics(i)});
  }
  qkv_.backward(*ops_, unit,
                {.x = normed,
                 .gathered = m.gathered_normed(normed, Within::attention),
                 .dy = m.dqkv(),
                 .partial = m.partial(Within::attention),
                 .dx = m.branch(Within::attention),
                 .dbias = qkv_.bias_gradient(unit)});
  norm1_.backward(
      *ops_, unit,
      norm_gradient({0, m.x(i), m.statistics(i), m.branch(Within::attention), m.dx()}, norm1_));
}

void Decoder::backward_branch(const GradientLease& unit, const NormLayer& norm,
                              const NormPlace& place) {
  clear(place.dx);
  norm.backward(*ops_, unit, norm_gradient(place, norm));
}

// Every head is one rank's, but for copies of keys, whose gradients are of that rank's queries:
// over the tensor group the weights' gradients are sums of these.
void Decoder::backward_heads(std::int64_t i, const GradientLease& unit) {
  const DecoderMemory& m = memory_;
  HeadNormLayer::Gradient gradient{
      .x = m.qkv(i), .statistics = m.head_statistics(Within::attention), .dy = m.dqkv()};
  if (const View sums = m.head_gradients(); !sums.empty()) {
    gradient.dquery = sums.slice(0, decoder_.head_width);
    gradient.dkey = sums.slice(decoder_.head_width, decoder_.head_width);
  }
  head_norms_.backward(*ops_, unit, gradient);
}

// Gradients of norms over a share of the rows are partial sums, kept in fp32 until the unit is
// done.
NormLayer::Gradient Decoder::norm_gradient(const NormPlace& norm, const NormLayer& layer) const {
  NormLayer::Gradient gradient{
      .x = norm.x, .statistics = norm.statistics, .dy = norm.dy, .dx = norm.dx};
  if (!tensor_.sequence_parallel()) return gradient;
  const View sums = memory_.norm_gradients();
  const std::int64_t at = norm.index * layer.parameters() * decoder_.width;
  gradient.dweight = sums.slice(at, decoder_.width);
  if (layer.bias != kAbsent) gradient.dbias = sums.slice(at + decoder_.width, decoder_.width);
  return gradient;
}

std::vector<Decoder::SummedGradient> Decoder::summed_gradients(
    std::initializer_list<const NormLayer*> norms,
    std::initializer_list<const HeadNormLayer*> heads) const {
  std::vector<SummedGradient> gradients;
  const auto add = [&](int slot, std::int64_t count) {
    if (slot != kAbsent) gradients.push_back({slot, count});
  };
  if (tensor_.sequence_parallel()) {
    for (const NormLayer* norm : norms) {
      for (const int slot : {norm->weight, norm->bias}) add(slot, decoder_.width);
    }
  }
  if (tensor_.ranks() > 1) {
    for (const HeadNormLayer* each : heads) {
      for (const int slot : {each->query, each->key}) add(slot, decoder_.head_width);
    }
  }
  return gradients;
}

// One sum over the tensor group for a unit's norms, rounded once: the same bits on all ranks.
void Decoder::finish_norms(const GradientLease& unit,
                           const std::vector<SummedGradient>& gradients) {
  if (gradients.empty()) return;
  std::int64_t count = 0;
  for (const SummedGradient& each : gradients) count += each.count;
  const View sums = memory_.norm_gradients().slice(0, count);
  tensor_.wait(tensor_.sum(sums, "norms"));
  std::int64_t at = 0;
  for (const SummedGradient& each : gradients) {
    copy(sums.slice(at, each.count), unit.gradient(each.slot));
    at += each.count;
  }
}

}  // namespace zero
