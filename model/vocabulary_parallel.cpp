// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary_parallel.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/checked_math.h"

namespace zero {
namespace {

/// A GPU computes as many rows of logits at a time as take so many bytes: fewer pieces read and
/// write the weight's fp32 gradient less often.
constexpr std::int64_t kGpuLogitBytes = std::int64_t{2} << 30;
constexpr std::int64_t kProductRows = 128;  // rows of a product's tile

}  // namespace

VocabularyParallelEmbedding::VocabularyParallelEmbedding(TensorParallel& tensor,
                                                         const EmbeddingShape& whole,
                                                         const Slots& slots)
    : tensor_(&tensor), shape_(whole), vocabulary_(whole.vocabulary), at_(slots) {
  const TensorSlice::Range mine = tensor.even_share("vocabulary", vocabulary_);
  shape_.first = mine.begin;
  shape_.vocabulary = mine.count;
}

ParameterSpec VocabularyParallelEmbedding::tokens(std::string name, Init init) const {
  return tensor_->slice(
      {.name = std::move(name), .shape = {vocabulary_, shape_.width}, .init = init}, 0,
      {{shape_.first, shape_.vocabulary, 0}});
}

void VocabularyParallelEmbedding::forward(Ops& ops, const ParameterLease& unit,
                                          const Forward& o) const {
  const bool positions = at_.positions != kAbsent && tensor_->rank() == 0;
  ops.embedding_forward(shape_, o.tokens, unit.at(at_.tokens),
                        positions ? unit.at(at_.positions) : View(), o.partial);
  tensor_->sum_rows({o.partial, o.x, shape_.width}, "embedding");
}

void VocabularyParallelEmbedding::backward(Ops& ops, const GradientLease& unit,
                                           const Backward& o) const {
  tensor_->gather_rows({o.gathered, o.dx, shape_.width}, "embedding gradient");
  ops.embedding_backward(shape_, o.tokens, o.gathered, unit.gradient(at_.tokens),
                         at_.positions == kAbsent ? View() : unit.gradient(at_.positions));
}

TrafficCounter VocabularyParallelEmbedding::traffic() const {
  TrafficCounter sent = tensor_->sum_traffic(shape_.width, shape_.dtype);
  sent.add(tensor_->gather_traffic(shape_.width, shape_.dtype));
  return sent;
}

VocabularyParallelHead::VocabularyParallelHead(TensorParallel& tensor, const LinearShape& whole)
    : tensor_(&tensor),
      shape_(whole),
      vocabulary_(whole.out),
      mine_(tensor.even_share("vocabulary", whole.out)) {
  shape_.out = mine_.count;
  const std::int64_t padded = padded_columns(tensor.device(), mine_.count);
  if (padded != mine_.count) shape_.out_stride = padded;
  shape_.layout = WeightLayout::out_in;
  shape_.weight_gradient = DType::fp32;
}

ParameterSpec VocabularyParallelHead::weight(std::string name, Init init) const {
  return tensor_->slice({.name = std::move(name), .shape = {vocabulary_, shape_.in}, .init = init},
                        0, {mine_});
}

std::int64_t VocabularyParallelHead::rows_at_a_time(TensorParallel& tensor, std::int64_t vocabulary,
                                                    DType dtype) {
  const std::int64_t largest = div_ceil(vocabulary, tensor.ranks());  // of their shares
  return piece_rows(tensor.device().piece_sizes(), tensor.rows(),
                    padded_columns(tensor.device(), largest), dtype);
}

std::int64_t VocabularyParallelHead::piece_rows(const PieceSizes& pieces, std::int64_t rows,
                                                std::int64_t columns, DType dtype) {
  const bool gpu = pieces.logit_rows >= kGpuPieces.logit_rows;
  if (!gpu) return std::min(rows, pieces.logit_rows);
  // Whole tiles, at least one at a time.
  const std::int64_t in_bytes =
      kGpuLogitBytes / (columns * size_of(dtype)) / kProductRows * kProductRows;
  const std::int64_t count = div_ceil(rows, std::max(in_bytes, kProductRows));
  return std::min(rows, round_up(div_ceil(rows, count), kProductRows));
}

std::int64_t VocabularyParallelHead::padded_columns(const Device& device, std::int64_t columns) {
  return round_up(columns, device.piece_sizes().logit_columns);
}

std::int64_t VocabularyParallelHead::parts_count(std::int64_t rows, int ranks) {
  return ranks == 1 ? 0 : rows * ranks * kSoftmaxPart;
}

LinearShape VocabularyParallelHead::linear(std::int64_t count) const {
  LinearShape part = shape_;
  part.rows = count;
  return part;
}

template <typename Body>
void VocabularyParallelHead::for_rows(const Body& body) const {
  const std::int64_t most = rows_at_a_time(*tensor_, vocabulary_, shape_.dtype);
  for (std::int64_t begin = 0; begin < tensor_->rows(); begin += most) {
    body(Slices::Range{begin, std::min(most, tensor_->rows() - begin)});
  }
}

void VocabularyParallelHead::prepare(Ops& ops) const {
  std::set<std::int64_t> counts;
  for_rows([&](const Slices::Range& rows) {
    counts.insert(rows.count);
    for (const RowCut::Piece& piece : tensor_->cut().pieces(rows)) counts.insert(piece.rows.count);
  });
  for (const std::int64_t count : counts) ops.prepare(linear(count), Ops::LinearUse::training);
  tensor_->prepare(shape_.in, shape_.dtype);
}

std::vector<Event> VocabularyParallelHead::gather(const Buffers& b) const {
  std::vector<Event> gathered;
  for (int k = 0; k < tensor_->chunks(); ++k) {
    gathered.push_back(tensor_->gather(k, {b.gathered, b.x, shape_.in}, "head"));
  }
  return gathered;
}

void VocabularyParallelHead::wait_for(const std::vector<Event>& gathered,
                                      const Slices::Range& rows) const {
  for (const RowCut::Piece& piece : tensor_->cut().pieces(rows)) {
    tensor_->wait(gathered[static_cast<std::size_t>(piece.chunk)]);
  }
}

void VocabularyParallelHead::forward_rows(Ops& ops, const Buffers& b, View weight,
                                          const Slices::Range& rows) const {
  ops.linear_forward(linear(rows.count), TensorParallel::rows_of(b.gathered, rows, shape_.in),
                     weight, View(), logits_of(b, rows.count));
}

void VocabularyParallelHead::fold(Ops& ops, const Buffers& b, View targets,
                                  const Slices::Range& rows) const {
  const std::int64_t each = rows.count * kSoftmaxPart;
  const View parts = b.parts.slice(0, tensor_->ranks() * each);
  ops.softmax_part(of_logits(rows.count), logits_of(b, rows.count),
                   targets.slice(rows.begin, rows.count),
                   parts.slice(tensor_->rank() * each, each));
  tensor_->wait(tensor_->gather(parts, Slices::even(parts, tensor_->ranks()).ranges, "softmax"));
  ops.fold_softmax(rows.count, tensor_->ranks(), parts, b.losses.slice(rows.begin, rows.count));
}

void VocabularyParallelHead::gradient_of_logits(Ops& ops, const Buffers& b, View targets,
                                                const Slices::Range& rows, float scale) const {
  const View logits = logits_of(b, rows.count);
  const View of_rows = targets.slice(rows.begin, rows.count);
  if (tensor_->ranks() == 1) {
    ops.cross_entropy_backward(of_logits(rows.count), logits, of_rows, scale,
                               b.losses.slice(rows.begin, rows.count));
    return;
  }
  fold(ops, b, targets, rows);
  ops.cross_entropy_gradient(of_logits(rows.count), logits, of_rows,
                             b.parts.slice(0, rows.count * kSoftmaxPart), scale);
}

void VocabularyParallelHead::train(Ops& ops, const Buffers& b, const Gradient& g,
                                   View targets) const {
  const std::vector<Event> gathered = gather(b);
  Event summed;
  for_rows([&](const Slices::Range& rows) {
    wait_for(gathered, rows);
    forward_rows(ops, b, g.weight, rows);
    gradient_of_logits(ops, b, targets, rows, g.scale);
    for (const RowCut::Piece& piece : tensor_->cut().pieces(rows)) {
      const Slices::Range at{piece.rows.begin - rows.begin, piece.rows.count};
      ops.linear_backward_input(
          linear(at.count), TensorParallel::rows_of(b.logits, at, shape_.row_stride()), g.weight,
          TensorParallel::rows_of(g.partial, piece.rows, shape_.in));
      if (!piece.ends_chunk) continue;
      summed = tensor_->sum(piece.chunk, {g.partial, g.dx, shape_.in}, "head gradient");
    }
    // Runs while dx is summed over ranks.
    ops.linear_backward_weight(
        linear(rows.count), TensorParallel::rows_of(b.gathered, rows, shape_.in),
        logits_of(b, rows.count), g.gradient, rows.begin == 0 ? g.write : Write::add);
  });
  tensor_->wait(summed);
}

void VocabularyParallelHead::evaluate(Ops& ops, const Buffers& b, View weight, View targets) const {
  const std::vector<Event> gathered = gather(b);
  for_rows([&](const Slices::Range& rows) {
    wait_for(gathered, rows);
    forward_rows(ops, b, weight, rows);
    if (tensor_->ranks() > 1) return fold(ops, b, targets, rows);
    ops.cross_entropy_forward(of_logits(rows.count), logits_of(b, rows.count),
                              targets.slice(rows.begin, rows.count),
                              b.losses.slice(rows.begin, rows.count));
  });
}

TrafficCounter VocabularyParallelHead::traffic() const {
  TrafficCounter sent = tensor_->sum_traffic(shape_.in, shape_.dtype);
  sent.add(tensor_->gather_traffic(shape_.in, shape_.dtype));
  if (tensor_->ranks() == 1) return sent;
  for_rows([&](const Slices::Range& rows) {
    const std::int64_t bytes = tensor_->ranks() * rows.count * kSoftmaxPart * size_of(DType::fp32);
    sent.add(Operation::all_gather,
             Communicator::sent_bytes(Operation::all_gather, bytes, tensor_->ranks()));
  });
  return sent;
}

}  // namespace zero
