// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "inference/model_weights.h"
#include "ops/inference_ops.h"

namespace zero {

/// What the ranks of one model are about to compute: a pass each, that of the ranks of a tensor
/// group the same. Known by all ranks, because each has a part of the vocabulary for all of them.
class PassExchange {
 public:
  /// For passes of up to `rows` rows, on every rank. `device` and the ranks must outlive this.
  PassExchange(Device& device, const ModelRanks& ranks, std::int64_t rows);

  /// Tells all ranks of this rank's pass and waits for theirs. Collective. Throws the same
  /// zero::Error on every rank if the ranks of a tensor group come with different passes.
  void run(const PassRows& pass);

  /// Of the last run().
  struct Pass {
    std::span<const std::int32_t> tokens;
    std::int64_t logit_rows = 0;
  };
  Pass of(int shard) const;
  /// Of all shards.
  std::int64_t rows() const;
  std::int64_t logit_rows() const;

 private:
  std::span<const std::int32_t> told(int rank) const;

  Device& device_;
  const ModelRanks ranks_;
  std::int64_t each_;               // numbers that a rank tells
  std::vector<std::int32_t> told_;  // of each rank: kFigures, then tokens
};

/// Embedding and head of several ranks. Each rank keeps the columns of some tokens. The columns
/// stay where they are: tokens, rows and logits travel, whose bytes are few beside a gather of the
/// largest matrices. Every value is computed once and copied, so no bit depends on the ranks. Ranks
/// without rows of their own work for the others.
///
/// What the ranks of a tensor group need is the same, so it comes to each of them in parts from the
/// shard ranks at its own tensor index, and the group gathers these.
class SplitVocabulary {
 public:
  struct Size {
    std::int64_t width = 0;
    DType dtype = DType::fp32;
    std::int64_t rows = 0;        ///< of a rank's pass, at most
    std::int64_t logit_rows = 0;  ///< of them with logits, at most
  };
  /// Allocates, charged to communication. All references must outlive this.
  SplitVocabulary(Device& device, InferenceOps& ops, const ModelRanks& ranks,
                  const std::vector<Slices::Range>& tokens, const Size& size);
  /// Notes the scratch of the head's product.
  void prepare(const WeightShape& head);

  /// x (rows, width) = the embedding of the pass's rows. Collective. Ends with ops.begin(pass).
  void embed(const PassExchange& passes, const PassRows& pass, const StoredWeight& embedding,
             View x);
  /// The first half of logits(): makes x (rows with logits, width; padded) known. Collective.
  void gather_rows(const PassExchange& passes, View x);
  /// logits (rows with logits, vocabulary), fp32, of these rows. Collective.
  void logits(const PassExchange& passes, const StoredWeight& head, View logits);

 private:
  /// Elements for or from each of some ranks, one after another.
  using Ranges = std::vector<Slices::Range>;
  std::int64_t columns(int rank) const { return tokens_[static_cast<std::size_t>(rank)].count; }
  int owner(std::int32_t token) const;
  Ranges arrivals(const std::vector<std::int64_t>& counts) const;
  void route(const PassExchange& passes);
  struct Exchange {
    View sent;
    Ranges to_shard;  ///< of `sent`, for each shard rank; unused if there is one
    View received;
    Ranges arrivals;  ///< of `received`, by rank: what each has computed
    std::string_view purpose;
  };
  void exchange(const Exchange& exchange);

  Device& device_;
  InferenceOps& ops_;
  const ModelRanks ranks_;
  const std::vector<Slices::Range>& tokens_;
  const Size size_;
  Buffer rows_sent_, rows_received_;      // of the embedding
  Buffer head_rows_;                      // with logits, of all shards
  Buffer logits_sent_, logits_received_;  // fp32
  View head_x_;                           // rows with logits of all shards
  Event rows_gathered_;
  // Of the embedding: the tokens that this rank looks up, for all ranks, counted from its first;
  // and the receive order of its own pass.
  PassRows routed_;
  Ranges routed_to_;    // of routed_.tokens, for each shard rank
  Ranges routed_from_;  // rows that arrive, by rank
};

}  // namespace zero
