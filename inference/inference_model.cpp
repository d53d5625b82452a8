// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/seconds_since.h"
#include "collectives/agreement.h"

namespace zero {
namespace {

std::list<DeviceClaim> claims_of(const ModelRanks& ranks, const Device& device) {
  std::list<DeviceClaim> claims;
  for (const Communicator* each :
       {ranks.all.communicator, ranks.shard.communicator, ranks.tensor.communicator}) {
    if (each != nullptr) claims.emplace_back(*each, device, "InferenceModel");
  }
  return claims;
}

}  // namespace

InferenceModel::InferenceModel(Device& device, const DecoderShape& shape,
                               const InferenceOptions& options, Mesh* mesh)
    : device_(device),
      ranks_(ModelRanks::of(mesh)),
      claims_(claims_of(ranks_, device)),
      split_(DecoderSplit::of(shape, ranks_.tensor.rank, ranks_.tensor.size)),
      options_(validated(options, split_.whole)),
      ops_(make_inference_ops(device)),
      row_ops_(make_ops(device)),
      weights_(device, *ops_, split_, ranks_, weight_options(options_)),
      cache_(device, cache_size(options_, decoder_)) {
  if (ranks_.all.communicator != nullptr) {
    ZERO_CHECK(device.memory() == MemorySpace::host,
               "device {}: a model of {} ranks; expected one rank: several answer on CPUs",
               device.name(), ranks_.all.size);
    if (device.has_memory()) {
      require_agreement(*ranks_.all.communicator, device, "inference",
                        agreement_lines(options_, split_.whole) + "bits: " + device.bits() + ", " +
                            row_ops_->bits(options_.dtype) + "\n");
    }
    exchange_.emplace(device, ranks_, options_.rows);
    vocabulary_.emplace(device, *ops_, ranks_, weights_.tokens(),
                        SplitVocabulary::Size{.width = decoder_.width,
                                              .dtype = options_.dtype,
                                              .rows = options_.rows,
                                              .logit_rows = options_.logit_rows});
  }
  allocate();
}

InferenceModel::~InferenceModel() {
  try {
    if (exchange_) device_.communication().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the stream's next use throws the error
  }
}

void InferenceModel::allocate() {
  const DecoderShape& d = decoder_;
  const std::int64_t rows = ops_->padded_rows(options_.rows);
  const std::int64_t last = ops_->padded_rows(options_.logit_rows);
  const auto take = [&](std::int64_t count, DType dtype) {
    return device_.allocate(count, dtype, MemoryClass::activations, "activations");
  };
  const auto of_rows = [&](std::int64_t width) { return take(rows * width, options_.dtype); };
  buffers_ = {.partial = take(ranks_.tensor.size > 1 ? rows * d.width : 0, DType::fp32),
              .x = of_rows(d.width),
              .normed = take(std::max(rows, last) * d.width, options_.dtype),
              .branch = of_rows(d.width),
              .qkv = of_rows(d.qkv_width()),
              .attended = of_rows(d.attended_width()),
              .hidden = of_rows(d.hidden_width()),
              .activated = of_rows(d.intermediate),
              .statistics = take(2 * std::max(rows, last), DType::fp32),
              .last_x = take(last * d.width, options_.dtype),
              .last_branch = take(last * d.width, options_.dtype),
              .logits = device_.memory() == MemorySpace::host
                            ? take(last * d.vocabulary, DType::fp32)
                            : device_.allocate_host(last * d.vocabulary, DType::fp32,
                                                    MemoryClass::activations, "activations")};
  logits_ = DeviceMirror(device_, last * d.vocabulary, DType::fp32, MemoryClass::activations,
                         "activations");
  for (const BlockLayout::Matrix& matrix : weights_.block_layout().matrices()) {
    ops_->prepare(matrix.shape, options_.rows);
  }
  if (vocabulary_) {
    vocabulary_->prepare(weights_.head().shape);
  } else {
    ops_->prepare(weights_.head().shape, options_.logit_rows);
  }
  ops_->prepare({.cache = cache_.shape(),
                 .heads = d.heads,
                 .rows = options_.rows,
                 .logit_rows = options_.logit_rows,
                 .sequences = std::min(options_.requests, options_.rows),
                 .tokens = options_.request_tokens});
  ops_->allocate_scratch();
  const RotaryRows::Size size{options_.request_tokens, rows, d.head_width};
  if (d.rotary) rotary_ = RotaryRows(device_, *row_ops_, *d.rotary, size);
  if (d.local_rotary) local_rotary_ = RotaryRows(device_, *row_ops_, *d.local_rotary, size);
  // Products read whole groups of rows: those that no token fills must hold numbers.
  for (const Buffer* each : {&buffers_.normed, &buffers_.attended, &buffers_.activated}) {
    device_.kernels().zero(device_.compute(), each->view());
  }
}

void InferenceModel::check(std::span<const Part> parts) const {
  std::int64_t rows = 0;
  std::int64_t logits = 0;
  std::int64_t blocks = 0;
  std::vector<bool> seen(static_cast<std::size_t>(cache_.slots()), false);
  for (const Part& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    ZERO_CHECK(cache_.is_open(part.slot) && !seen[static_cast<std::size_t>(part.slot)],
               "forward: slot {}, expected each that the cache opened of 0 to {} at most once",
               part.slot, cache_.slots() - 1);
    seen[static_cast<std::size_t>(part.slot)] = true;
    const std::int64_t length = cache_.length(part.slot);
    ZERO_CHECK(count >= 1 && length + count <= cache_.tokens(),
               "forward: {} tokens behind {} of slot {}, expected at least one and at most {} in "
               "all",
               count, length, part.slot, cache_.tokens());
    for (const std::uint32_t token : part.tokens) {
      ZERO_CHECK(token < decoder_.vocabulary, "forward: token {}, expected 0 to {}", token,
                 decoder_.vocabulary - 1);
    }
    ZERO_CHECK(part.logits >= 0 && part.logits <= count,
               "forward: logits of {} tokens of {}, expected 0 to all of them", part.logits, count);
    rows += count;
    logits += part.logits;
    blocks += cache_.blocks_needed(part.slot, count);
  }
  ZERO_CHECK(rows <= options_.rows, "forward: {} tokens in a pass, expected at most {}", rows,
             options_.rows);
  ZERO_CHECK(logits <= options_.logit_rows, "forward: logits of {} tokens, expected at most {}",
             logits, options_.logit_rows);
  ZERO_CHECK(blocks <= cache_.available_blocks(),
             "forward: {} blocks of the cache, expected at most the {} that are left of {}", blocks,
             cache_.available_blocks(), cache_.total_blocks());
}

void InferenceModel::append(std::span<const Part> parts) {
  pass_ = {};
  for (const Part& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    const std::int64_t position = cache_.length(part.slot);
    cache_.append(part.slot, part.tokens);
    pass_.sequences.push_back({pass_.count(), count, position, cache_.blocks(part.slot)});
    for (std::int64_t i = 0; i < count; ++i) {
      if (count - i <= part.logits) {
        pass_.logit_rows.push_back(static_cast<std::int32_t>(pass_.count()));
      }
      pass_.tokens.push_back(static_cast<std::int32_t>(part.tokens[static_cast<std::size_t>(i)]));
      pass_.positions.push_back(static_cast<std::int32_t>(position + i));
    }
  }
}

void InferenceModel::forward(std::span<const Part> parts) {
  ZERO_CHECK(!failed_,
             "forward: a pass of this model failed, after which its ranks cannot go on together; "
             "end the job");
  check(parts);
  if (parts.empty() && !exchange_) return;
  try {
    append(parts);
    run();
  } catch (...) {
    cache_.forget();
    failed_ = exchange_.has_value();
    throw;
  }
}

void InferenceModel::run() {
  Stream& stream = device_.compute();
  const double waited = stream.waited_seconds();
  const auto begin = std::chrono::steady_clock::now();
  if (exchange_) exchange_->run(pass_);
  const double met = exchange_ ? seconds_since(begin) : 0;
  if (!exchange_) {
    const std::optional<PassSizes> sizes = ops_->begin(pass_);
    if (sizes && options_.graphs) {
      repeat(*sizes);
    } else {
      compute();
    }
    logits_.download(stream,
                     buffers_.logits.slice(0, std::ssize(pass_.logit_rows) * decoder_.vocabulary));
    stream.synchronize();
  } else if (exchange_->rows() > 0) {
    vocabulary_->embed(*exchange_, pass_, weights_.embedding(),
                       rows_of(buffers_.x, decoder_.width));
    compute();
    stream.synchronize();
  }
  exposed_.last = met + stream.waited_seconds() - waited;
  exposed_.total += exposed_.last;
  const double seconds = seconds_since(begin);
  if (pass_.count() > 0) pass_times_.add(pass_.count(), seconds - exposed_.last, seconds);
  if (!exchange_ || exchange_->rows() > 0) weights_.check_blocks();
}

void InferenceModel::repeat(const PassSizes& sizes) {
  // The driver's memory for a graph, beside the plan, is some 64 KiB a kernel. If there are more
  // sizes, all begin anew.
  constexpr std::size_t kMostGraphs = 32;
  if (graphs_.size() == kMostGraphs && !graphs_.contains(sizes)) graphs_.clear();
  device_.compute().repeat(graphs_[sizes], "pass", CapturedGraph::Check::at_first,
                           [this] { compute(); });
}

void InferenceModel::compute() {
  embed();
  for (std::int64_t i = 0; i < decoder_.layers; ++i) {
    const ModelWeights::Block block = weights_.block(i);
    if (pass_.count() > 0) forward_block(i, block);
  }
  forward_head();
}

std::span<const float> InferenceModel::logits(std::int64_t i) const {
  ZERO_CHECK(i >= 0 && i < std::ssize(pass_.logit_rows),
             "logits of row {}, expected one of the last pass's {}", i, pass_.logit_rows.size());
  return buffers_.logits.slice(i * vocabulary(), vocabulary()).as<const float>();
}

void InferenceModel::embed() {
  const DecoderShape& d = decoder_;
  if (pass_.count() == 0) return;
  const View x = rows_of(buffers_.x, d.width);
  if (!vocabulary_) ops_->embed(weights_.embedding(), x);
  if (!weights_.positions().empty()) {
    const View positions = rows_of(buffers_.branch, d.width);
    ops_->take_rows(RowList::positions, weights_.positions(), d.width, positions);
    row_ops_->add(x, positions, x);
  }
  if (d.embedding_scale != 1) row_ops_->scale(x, static_cast<float>(d.embedding_scale));
  if (d.rotary) rotary_.take_rows(*ops_, pass_.count());
  if (d.local_rotary) local_rotary_.take_rows(*ops_, pass_.count());
}

// Of the first rows of `normed`, from as many of x and delta, which is added to x first; it may be
// empty.
void InferenceModel::norm(const View& x, const View& delta, const View& weight, const View& bias) {
  norm(x, delta, weight, bias, buffers_.normed.slice(0, x.count()));
}

// In place, of a model that has such norms.
void InferenceModel::norm_branch(const View& weight) {
  if (weight.empty()) return;
  const View branch = rows_of(buffers_.branch, decoder_.width);
  norm(branch, View(), weight, View(), branch);
}

void InferenceModel::norm(const View& x, const View& delta, const View& weight, const View& bias,
                          const View& y) {
  const std::int64_t rows = x.count() / decoder_.width;
  const std::int64_t statistics = decoder_.norm == NormKind::layer ? 2 : 1;
  row_ops_->norm_forward({rows, decoder_.width, options_.dtype},
                         {.x = x,
                          .delta = delta,
                          .sum = delta.empty() ? View() : x,
                          .weight = weight,
                          .bias = bias,
                          .y = y,
                          .statistics = buffers_.statistics.slice(0, statistics * rows),
                          .epsilon = static_cast<float>(decoder_.epsilon),
                          .plus_one = decoder_.norm == NormKind::rms_plus_one});
}

// The branch of x: its inputs lie on the ranks of the tensor group. Their sum is fp32, by the fixed
// tree, and rounded once, so that all ranks get the same bits.
void InferenceModel::summed_linear(const StoredWeight& weight, const View& bias, const Buffer& x) {
  const std::int64_t rows = pass_.count();
  if (ranks_.tensor.communicator == nullptr) {
    return ops_->linear(weight, rows, x.view(), bias, buffers_.branch.view());
  }
  ops_->linear(weight, rows, x.view(), ranks_.tensor.rank == 0 ? bias : View(),
               buffers_.partial.view());
  const View partial = rows_of(buffers_.partial, decoder_.width);
  Stream& compute = device_.compute();
  Stream& communication = device_.communication();
  communication.wait(compute.record());
  ranks_.tensor.communicator->all_reduce(partial, ReduceOp::sum, communication,
                                         {"partial sums", {}});
  compute.wait(communication.record());
  device_.kernels().convert(compute, partial, rows_of(buffers_.branch, decoder_.width));
}

void InferenceModel::forward_block(std::int64_t i, const ModelWeights::Block& block) {
  const DecoderShape& d = decoder_;
  const auto matrix = [&](BlockSlot slot) { return block.matrix(slot); };
  const auto vector = [&](BlockSlot slot) { return block.vector(slot); };
  const View x = rows_of(buffers_.x, d.width);
  const View branch = rows_of(buffers_.branch, d.width);
  norm(x, i > 0 ? branch : View(), vector(BlockSlot::norm1_weight), vector(BlockSlot::norm1_bias));
  ops_->linear(matrix(BlockSlot::qkv_weight), pass_.count(), buffers_.normed.view(),
               vector(BlockSlot::qkv_bias), buffers_.qkv.view());
  attention(i, block);
  summed_linear(matrix(BlockSlot::projection_weight), vector(BlockSlot::projection_bias),
                buffers_.attended);
  norm_branch(vector(BlockSlot::projection_norm_weight));
  norm(x, branch, vector(BlockSlot::norm2_weight), vector(BlockSlot::norm2_bias));
  ops_->linear(matrix(BlockSlot::hidden_weight), pass_.count(), buffers_.normed.view(),
               vector(BlockSlot::hidden_bias), buffers_.hidden.view());
  const View activated = rows_of(buffers_.activated, d.intermediate);
  if (d.gated()) {
    row_ops_->gated_forward({pass_.count(), d.intermediate, options_.dtype}, d.gate(),
                            rows_of(buffers_.hidden, 2 * d.intermediate), activated);
  } else {
    row_ops_->gelu_forward(rows_of(buffers_.hidden, d.intermediate), activated);
  }
  summed_linear(matrix(BlockSlot::output_weight), vector(BlockSlot::output_bias),
                buffers_.activated);
  norm_branch(vector(BlockSlot::output_norm_weight));
}

void InferenceModel::attention(std::int64_t i, const ModelWeights::Block& block) {
  const DecoderShape& d = decoder_;
  const View qkv = rows_of(buffers_.qkv, d.qkv_width());
  if (d.head_norms) {
    row_ops_->head_norm_forward({pass_.count(), d.heads, d.kv_heads, d.head_width, options_.dtype},
                                {.x = qkv,
                                 .query_weight = block.vector(BlockSlot::query_norm_weight),
                                 .key_weight = block.vector(BlockSlot::key_norm_weight),
                                 .y = qkv,
                                 .epsilon = static_cast<float>(d.epsilon),
                                 .plus_one = d.norm == NormKind::rms_plus_one});
  }
  if (d.rotary) {
    const RotaryRows& rotary = d.turns_locally(i) ? local_rotary_ : rotary_;
    rotary.turn(*row_ops_,
                {.batch = 1,
                 .sequence = pass_.count(),
                 .heads = d.heads + d.kv_heads,
                 .head_width = d.head_width,
                 .row_width = d.qkv_width(),
                 .dtype = options_.dtype},
                qkv);
  }
  const CachedAttention operands{.cache = cache_.shape(),
                                 .heads = d.heads,
                                 .layer = cache_.layer(i),
                                 .qkv = qkv,
                                 .out = rows_of(buffers_.attended, d.attended_width()),
                                 .window = d.window_of(i),
                                 .scale = static_cast<float>(d.score_scale)};
  ops_->append(operands);
  ops_->attend(operands);
}

void InferenceModel::last_norm() {
  const std::int64_t width = decoder_.width;
  const std::int64_t count = std::ssize(pass_.logit_rows);
  for (const auto& [from, to] : {std::pair(&buffers_.x, &buffers_.last_x),
                                 std::pair(&buffers_.branch, &buffers_.last_branch)}) {
    ops_->take_rows(RowList::logit_rows, rows_of(*from, width), width, to->slice(0, count * width));
  }
  norm(buffers_.last_x.slice(0, count * width), buffers_.last_branch.slice(0, count * width),
       weights_.norm_weight(), weights_.norm_bias());
}

// Gathers of the next pass come behind the rows, which the head waits for, and beside its product.
void InferenceModel::forward_head() {
  const std::int64_t count = std::ssize(pass_.logit_rows);
  if (count > 0) last_norm();
  const bool wanted = count > 0 || (exchange_ && exchange_->logit_rows() > 0);
  const View x = buffers_.normed.view();
  if (vocabulary_ && wanted) vocabulary_->gather_rows(*exchange_, x);
  weights_.prefetch();
  if (!wanted) return;
  if (vocabulary_) {
    vocabulary_->logits(*exchange_, weights_.head(), buffers_.logits.view());
  } else {
    ops_->linear(weights_.head(), count, x, View(), logits_.of(buffers_.logits.view()));
  }
}

}  // namespace zero
