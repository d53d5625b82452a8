// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/telemetry/console.h"

namespace zero {

/// The arguments of zero_prepare.
struct PrepareOptions {
  std::vector<std::string> files;   ///< texts, in this order
  std::string out;                  ///< folder, created if needed
  std::string tokenizer = "bytes";  ///< as make_tokenizer takes it
  double validation = 0.02;         ///< fraction, from 0 to below 1, taken from the end of the text
  std::int64_t shard_tokens = 100'000'000;  ///< of a train shard, at most
};

/// The files written.
struct PrepareReport {
  std::int64_t text_bytes = 0;
  std::int64_t train_tokens = 0;
  std::int64_t validation_tokens = 0;
  std::int64_t vocabulary = 0;
  std::vector<std::string> train_files{};
  std::string validation_file{};  ///< empty if the fraction is 0
};

/// Encodes texts as token shards train_000000.bin, ... and validation.bin. The files get their
/// names only at the end, when they are whole; train shards of an earlier run are replaced. Texts
/// are read in chunks that end at a line. Throws zero::Error naming the file or option.
PrepareReport prepare(const PrepareOptions& options, Console& console);

}  // namespace zero
