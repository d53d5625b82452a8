// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/view.h"
#include "launch/data/data_order.h"
#include "launch/data/token_file.h"

namespace zero {

struct TrainConfig;

/// A file of a run's data, and the key that names it.
struct DataFile {
  std::string key;
  std::string name;  ///< "data.train[0]"
  const TokenFile& file;
};

/// The data of a run: training and validation streams, checked against the configuration.
class Batches {
 public:
  /// Opens the files and checks this rank's share of the token ids. Throws zero::Error naming file
  /// and key on bad files, fewer sequences than a batch, and ids beyond the vocabulary.
  Batches(const TrainConfig& config, int rank);

  /// The order in which a run that begins reads the training data.
  const DataOrder& order() const { return order_; }
  /// Fills in the rows of one micro-batch: row r takes training sequence rows[r].
  void train(std::span<const std::int64_t> rows, View inputs, View targets) const;
  /// Rows of validation sequences: row r takes sequence rows[r].
  void validation(std::span<const std::int64_t> rows, View inputs, View targets) const;
  /// Sequences in one validation; 0 without validation data.
  std::int64_t validation_sequences() const { return validation_sequences_; }
  /// For users: files of a folder that were left out, then files and tokens of each key, then files
  /// with the same tokens.
  const std::vector<std::string>& lines() const { return lines_; }
  const TokenStream& train_stream() const { return *train_; }
  /// The files, those of data.train first.
  std::vector<DataFile> files() const;
  /// Hashes that identify the files, to compare ranks: of all bytes where a digest lies beside the
  /// file.
  std::map<std::string, std::string> fingerprint() const;
  /// What checkpoints call the training data, shard by shard: no paths and no digests.
  std::vector<std::string> train_fingerprints() const;

 private:
  void open_validation(const std::vector<std::string>& files, const TrainConfig& config, int rank);
  void fill(const TokenStream& stream, std::span<const std::int64_t> rows, View inputs,
            View targets) const;

  std::int64_t length_;
  std::int64_t vocabulary_;
  std::unique_ptr<TokenStream> train_;
  std::unique_ptr<TokenStream> validation_;
  std::int64_t validation_sequences_ = 0;
  DataOrder order_;
  std::vector<std::string> lines_;
};

}  // namespace zero
