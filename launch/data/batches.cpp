// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/batches.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/error.h"
#include "launch/config/train_config.h"
#include "launch/data/data_files.h"

namespace zero {
namespace {

/// Token ids that a rank checks before the first step; the others are checked when used.
constexpr std::int64_t kCheckedAtStart = std::int64_t{1} << 26;

void check_share(const TokenStream& stream, const TrainConfig& config, int rank) {
  const std::int64_t share = div_ceil(stream.count(), config.world);
  const std::int64_t begin = std::min(stream.count(), share * rank);
  stream.check_tokens(begin, std::min(stream.count(), begin + std::min(share, kCheckedAtStart)),
                      config.model.vocabulary);
}

std::string fingerprint_of(const TokenFile& file) {
  return fmt::format("{} tokens, fingerprint {:016x}", file.count(), file.fingerprint());
}

std::string tokens_text(std::int64_t tokens) {
  const auto count = static_cast<double>(tokens);
  if (count < 1e4) return fmt::format("{} tokens", tokens);
  if (count < 1e6) return fmt::format("{:.1f} k tokens", count / 1e3);
  if (count < 1e9) return fmt::format("{:.1f} M tokens", count / 1e6);
  return fmt::format("{:.1f} G tokens", count / 1e9);
}

std::string size_line(const char* key, const TokenStream& stream) {
  const std::size_t files = stream.files().size();
  return fmt::format("{}: {} file{}, {}", key, files, files == 1 ? "" : "s",
                     tokens_text(stream.count()));
}

/// Lines that tell of files with the same tokens, as their digests say.
std::vector<std::string> repetition_lines(const std::vector<DataFile>& files) {
  std::vector<std::string> lines;
  std::map<std::string, const DataFile*> seen;
  for (const DataFile& each : files) {
    if (each.file.digest() == nullptr || each.file.count() == 0) continue;
    const auto [at, is_new] = seen.try_emplace(each.file.digest()->text(), &each);
    const DataFile& first = *at->second;
    if (is_new) continue;
    lines.push_back(fmt::format(
        "{}: {} has the same tokens as {} of {}: {}", each.key, each.file.path(), first.file.path(),
        first.key,
        each.key == first.key ? "they are counted twice" : "a loss on them says nothing"));
  }
  return lines;
}

std::span<std::int32_t> row_of(View view, std::int64_t row, std::int64_t length) {
  return view.slice(row * length, length).as<std::int32_t>();
}

}  // namespace

Batches::Batches(const TrainConfig& config, int rank)
    : length_(config.data.sequence_length), vocabulary_(config.model.vocabulary) {
  DataFiles files = find_data_files(config.data.train, config.data.validation);
  lines_ = std::move(files.lines);
  train_ = std::make_unique<TokenStream>(files.train);
  lines_.push_back(size_line("data.train", *train_));
  const std::int64_t sequences = train_->sequences(length_);
  ZERO_CHECK(sequences >= config.batch.train,
             "data.train: {} tokens in {} file(s) make {} sequences of {}, fewer than one batch of "
             "{}; give more data, or smaller train_batch_size, data.sequence_length or fewer ranks",
             train_->count(), train_->files().size(), sequences, length_, config.batch.train);
  order_ = {.sequences = sequences,
            .micro_batches = config.batch.accumulation * config.data_ranks(),
            .rows = config.batch.micro,
            .shuffle = config.data.shuffle,
            .seed = config.run.seed};
  check_share(*train_, config, rank);
  open_validation(files.validation, config, rank);
  for (std::string& line : repetition_lines(this->files())) lines_.push_back(std::move(line));
}

void Batches::open_validation(const std::vector<std::string>& files, const TrainConfig& config,
                              int rank) {
  if (files.empty()) return;
  validation_ = std::make_unique<TokenStream>(files);
  lines_.push_back(size_line("data.validation", *validation_));
  validation_sequences_ = validation_->sequences(length_);
  ZERO_CHECK(validation_sequences_ > 0,
             "data.validation: {} tokens are shorter than one sequence of {} and its target; give "
             "more data or a smaller data.sequence_length",
             validation_->count(), length_);
  if (config.run.validation_sequences > 0) {
    validation_sequences_ = std::min(validation_sequences_, config.run.validation_sequences);
  }
  check_share(*validation_, config, rank);
}

void Batches::fill(const TokenStream& stream, std::span<const std::int64_t> rows, View inputs,
                   View targets) const {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto at = static_cast<std::int64_t>(row);
    stream.sequence(rows[row], vocabulary_, row_of(inputs, at, length_),
                    row_of(targets, at, length_));
  }
}

void Batches::train(std::span<const std::int64_t> rows, View inputs, View targets) const {
  fill(*train_, rows, inputs, targets);
}

void Batches::validation(std::span<const std::int64_t> rows, View inputs, View targets) const {
  fill(*validation_, rows, inputs, targets);
}

std::vector<DataFile> Batches::files() const {
  std::vector<DataFile> all;
  const auto add = [&](const std::string& key, const TokenStream& stream) {
    int number = 0;
    for (const TokenFile& file : stream.files()) {
      all.push_back({key, fmt::format("{}[{}]", key, number++), file});
    }
  };
  add("data.train", *train_);
  if (validation_) add("data.validation", *validation_);
  return all;
}

std::map<std::string, std::string> Batches::fingerprint() const {
  std::map<std::string, std::string> all;
  for (const auto& [key, name, file] : files()) {
    all[name] = fmt::format(
        "{} ({}, {})", file.path(), fingerprint_of(file),
        file.digest() == nullptr ? "no digest beside it" : "digest " + file.digest()->text());
  }
  return all;
}

std::vector<std::string> Batches::train_fingerprints() const {
  std::vector<std::string> all;
  for (const TokenFile& file : train_->files()) all.push_back(fingerprint_of(file));
  return all;
}

}  // namespace zero
