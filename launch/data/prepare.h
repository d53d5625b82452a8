// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/file_system.h"
#include "launch/telemetry/output.h"

namespace zero {

/// The arguments of zero_prepare.
struct PrepareOptions {
  std::vector<std::string> files;   ///< texts, in this order
  std::string out;                  ///< folder, created if needed
  std::string tokenizer = "bytes";  ///< as make_tokenizer takes it
  double validation = 0.02;         ///< fraction, from 0 to below 1, taken from the end of the text
  std::int64_t shard_tokens = 100'000'000;  ///< of a train shard, at most
  bool special = false;                     ///< special tokens written in texts act
  bool no_bos = false;       ///< no token before a document, even where the tokenizer puts one
  std::string json_field{};  ///< files are JSON lines, whose member of this name is a document
};

/// The files written.
struct PrepareReport {
  std::int64_t text_bytes = 0;
  std::int64_t train_tokens = 0;
  std::int64_t validation_tokens = 0;
  std::int64_t vocabulary = 0;
  std::vector<std::string> train_files{};
  std::string validation_file{};  ///< empty if the fraction is 0
  std::int64_t documents = 0;     ///< files, or JSON lines
  std::string before{};           ///< the token before each document, with its id; empty: none
  std::string behind{};           ///< likewise
};

/// Encodes texts as token shards train_000000.bin, ... and validation.bin, each with its digest
/// beside it. They replace those of an earlier run only at the end, when all are whole, and then as
/// one set. Texts are read in parts; their ids are those of the whole, but for lines of more than
/// 16 MiB. Throws zero::Error naming the file or option, and the byte if it is not UTF-8.
PrepareReport prepare(const PrepareOptions& options, Console& console,
                      files::FileSystem& files = files::disk());

/// Writes digests of token files that have none, or whose tokens were changed, beside the files:
/// what lies beside those, as a pattern finds it, is passed over. Returns the digests' paths.
/// Throws zero::Error if no token file is left.
std::vector<std::string> make_digests(const std::vector<std::string>& files);

}  // namespace zero
