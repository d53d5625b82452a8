// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"
#include "inference/text/tokenizer.h"
#include "launch/data/data_files.h"
#include "launch/data/prepared_set.h"
#include "launch/data/token_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{1} << 20;

std::int64_t size_of_text(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  ZERO_CHECK(!error, "{}: cannot read the text: {}", path, error.message());
  return static_cast<std::int64_t>(size);
}

/// Bytes at the end of `text` that begin a character without its end.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const Utf8Start start = utf8_start(text.substr(text.size() - bytes));
    if (start.kind == Utf8Start::Kind::unfinished) return bytes;
  }
  return 0;
}

/// Receives tokens and splits them into files.
class ShardWriter {
 public:
  ShardWriter(const PrepareOptions& options, std::int64_t token_bytes, files::FileSystem& files)
      : options_(options), token_bytes_(token_bytes), files_(files), set_(files, options.out) {}

  const std::string& warning() const { return set_.warning(); }

  void train(std::span<const std::uint32_t> tokens) {
    while (!tokens.empty()) {
      if (shard_ == nullptr || shard_->count() == options_.shard_tokens) next_shard();
      const auto room = static_cast<std::size_t>(options_.shard_tokens - shard_->count());
      const auto part = tokens.first(std::min(room, tokens.size()));
      shard_->write(part);
      tokens = tokens.subspan(part.size());
    }
  }

  void validation(std::span<const std::uint32_t> tokens) {
    if (!validation_) {
      validation_ =
          std::make_unique<TokenFileWriter>(set_.path_of(kValidationName), token_bytes_, files_);
    }
    validation_->write(tokens);
  }

  void commit(PrepareReport& report) {
    ZERO_CHECK(shard_ != nullptr,
               "the texts leave nothing to train on; give more text or a smaller --validation");
    end_shard();
    report.train_tokens = train_tokens_;
    for (const std::string& name : names_) report.train_files.push_back(options_.out + "/" + name);
    if (validation_) {
      report.validation_tokens = validation_->count();
      report.validation_file = fmt::format("{}/{}", options_.out, kValidationName);
      validation_->finish();
      validation_->commit();
      names_.emplace_back(kValidationName);
    }
    std::vector<std::string> all = names_;
    for (const std::string& name : names_) all.push_back(digest_path(name));
    set_.commit(all);
  }

 private:
  void next_shard() {
    if (shard_ != nullptr) end_shard();
    names_.push_back(fmt::format("train_{:06}.bin", names_.size()));
    shard_ = std::make_unique<TokenFileWriter>(set_.path_of(names_.back()), token_bytes_, files_);
  }

  void end_shard() {
    shard_->finish();
    shard_->commit();
    train_tokens_ += shard_->count();
    shard_.reset();
  }

  static constexpr const char* kValidationName = "validation.bin";

  const PrepareOptions& options_;
  std::int64_t token_bytes_;
  files::FileSystem& files_;
  PreparedSet set_;
  std::vector<std::string> names_;  // of the train shards begun
  std::int64_t train_tokens_ = 0;   // in shards that are complete
  std::unique_ptr<TokenFileWriter> shard_;
  std::unique_ptr<TokenFileWriter> validation_;
};

/// Reads texts chunk by chunk, encodes them and reports progress.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, Console& console, files::FileSystem& files)
      : options_(options),
        console_(console),
        tokenizer_(make_tokenizer(options.tokenizer)),
        writer_(options, tokenizer_->vocabulary() > 65536 ? 4 : 2, files) {}

  PrepareReport run() {
    for (const std::string& path : options_.files) total_ += size_of_text(path);
    if (!writer_.warning().empty()) console_.line(writer_.warning());
    ZERO_CHECK(total_ > 0, "the texts are empty: {} file(s), 0 bytes", options_.files.size());
    split_ = total_ - static_cast<std::int64_t>(static_cast<double>(total_) * options_.validation);
    for (const std::string& path : options_.files) read(path);
    PrepareReport report;
    report.text_bytes = done_;
    report.vocabulary = tokenizer_->vocabulary();
    writer_.commit(report);
    console_.end_progress();
    return report;
  }

 private:
  void read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ZERO_CHECK(file, "{}: cannot read the text: {}", path, std::strerror(errno));
    std::string text;
    std::vector<char> chunk(kChunk);
    while (file) {
      // A chunk never crosses the boundary between training and validation.
      const std::int64_t pending = done_ + static_cast<std::int64_t>(text.size());
      const std::int64_t left =
          split_ > pending ? split_ - pending : static_cast<std::int64_t>(kChunk);
      file.read(chunk.data(), std::min<std::int64_t>(left, static_cast<std::int64_t>(kChunk)));
      text.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
      const std::size_t newline = text.rfind('\n');
      const bool at_split = done_ + static_cast<std::int64_t>(text.size()) == split_;
      if (!at_split && newline != std::string::npos) {
        encode(text.substr(0, newline + 1));
        text.erase(0, newline + 1);
      } else if (at_split || text.size() >= 16 * kChunk) {
        const std::size_t whole = text.size() - unfinished_bytes(text);
        if (at_split) split_ = done_ + static_cast<std::int64_t>(whole);
        encode(text.substr(0, whole));
        text.erase(0, whole);
      }
    }
    ZERO_CHECK(!file.bad(), "{}: reading the text failed", path);
    encode(text);
    if (tokenizer_->end_of_document() >= 0) {
      put({static_cast<std::uint32_t>(tokenizer_->end_of_document())}, done_ - 1);
    }
  }

  void encode(const std::string& text) {
    if (text.empty()) return;
    put(tokenizer_->encode(text), done_);
    done_ += static_cast<std::int64_t>(text.size());
    progress();
  }

  void put(const std::vector<std::uint32_t>& tokens, std::int64_t position) {
    if (position < split_) {
      writer_.train(tokens);
    } else {
      writer_.validation(tokens);
    }
    tokens_ += static_cast<std::int64_t>(tokens.size());
  }

  void progress() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::max(1e-3, std::chrono::duration<double>(now - start_).count());
    const double speed = static_cast<double>(done_) / seconds;
    const std::string text =
        fmt::format("{:5.1f} %  {} of {}  {} tokens  {}/s  {} left",
                    100.0 * static_cast<double>(done_) / static_cast<double>(total_),
                    bytes_text(static_cast<double>(done_)), bytes_text(static_cast<double>(total_)),
                    count_text(static_cast<double>(tokens_)), bytes_text(speed),
                    duration_text(static_cast<double>(total_ - done_) / speed));
    console_.refresh(text);
    if (console_.mode() == Console::Mode::lines && now - last_line_ >= std::chrono::seconds(10)) {
      last_line_ = now;
      console_.line(text);
    }
  }

  const PrepareOptions& options_;
  Console& console_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ShardWriter writer_;
  std::int64_t total_ = 0;
  std::int64_t split_ = 0;  // the byte at which validation starts
  std::int64_t done_ = 0;
  std::int64_t tokens_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_line_ = start_;
};

}  // namespace

PrepareReport prepare(const PrepareOptions& options, Console& console, files::FileSystem& files) {
  ZERO_CHECK(!options.files.empty(), "no text is given; name one or more text files");
  ZERO_CHECK(options.validation >= 0 && options.validation < 1,
             "--validation is {}, expected a part from 0 to below 1", options.validation);
  ZERO_CHECK(options.shard_tokens >= 1 && options.shard_tokens <= 2147483647,
             "--shard-tokens is {}, expected 1 to 2147483647", options.shard_tokens);
  std::error_code error;
  fs::create_directories(options.out, error);
  ZERO_CHECK(!error && fs::is_directory(options.out),
             "{}: cannot make the folder: {}; give --out a folder you may write to", options.out,
             error ? error.message() : "it is a file");
  return Preparation(options, console, files).run();
}

std::vector<std::string> make_digests(const std::vector<std::string>& files) {
  std::vector<std::string> token_files;
  std::ranges::copy_if(files, std::back_inserter(token_files), may_be_token_file);
  ZERO_CHECK(!token_files.empty(),
             "--digest: {} and the others are no token files by their names, but lie beside them; "
             "name the .bin files",
             files.front());
  std::vector<std::string> digests;
  for (const std::string& file : token_files) digests.push_back(make_digest(file));
  return digests;
}

std::string make_digest(const std::string& token_file) {
  const std::atomic<bool> never{false};
  write_digest(digest_path(token_file),
               digest_of(TokenFile(token_file, TokenFile::Digest::ignored), never));
  return digest_path(token_file);
}

}  // namespace zero
