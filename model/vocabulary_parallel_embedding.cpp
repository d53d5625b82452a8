// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary_parallel_embedding.h"

#include <utility>

#include "model/tensor_specs.h"

namespace zero {

VocabularyParallelEmbedding::VocabularyParallelEmbedding(TensorParallel& tensor,
                                                         const EmbeddingShape& whole,
                                                         const Slots& slots)
    : tensor_(&tensor), shape_(whole), vocabulary_(whole.vocabulary), at_(slots) {
  const TensorSlice::Range mine = even_share("vocabulary", vocabulary_, tensor);
  shape_.first = mine.begin;
  shape_.vocabulary = mine.count;
}

ParameterSpec VocabularyParallelEmbedding::tokens(std::string name, Init init) const {
  return sliced_spec({.name = std::move(name), .shape = {vocabulary_, shape_.width}, .init = init},
                     {0, {{shape_.first, shape_.vocabulary, 0}}}, tensor_->ranks());
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

}  // namespace zero
