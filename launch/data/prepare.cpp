// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/seconds_since.h"
#include "base/utf8.h"
#include "launch/data/data_files.h"
#include "launch/data/prepared_set.h"
#include "launch/data/text_encoder.h"
#include "launch/data/token_digest.h"
#include "launch/data/token_file.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

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
  ShardWriter(const PrepareOptions& options, const Tokenizer& tokenizer, files::FileSystem& files)
      : options_(options), mark_(mark_of(tokenizer)), files_(files), set_(files, options.out) {}

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
    if (!validation_) validation_ = begin(kValidationName);
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
    shard_ = begin(names_.back());
  }

  std::unique_ptr<TokenFileWriter> begin(const std::string& name) {
    const int token_bytes = mark_.vocabulary > 65536 ? 4 : 2;
    auto file = std::make_unique<TokenFileWriter>(set_.path_of(name), token_bytes, files_);
    file->name_tokenizer(mark_);
    return file;
  }

  void end_shard() {
    shard_->finish();
    shard_->commit();
    train_tokens_ += shard_->count();
    shard_.reset();
  }

  static constexpr const char* kValidationName = "validation.bin";

  const PrepareOptions& options_;
  TokenizerMark mark_;
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
        encoder_(options.tokenizer,
                 options.special ? TextEncoder::Special::tokens : TextEncoder::Special::words),
        before_(options.no_bos ? std::vector<std::uint32_t>() : encoder_.tokens_before()),
        writer_(options, encoder_.tokenizer(), files) {
    if (const std::int64_t id = encoder_.tokenizer().end_of_document(); id >= 0) {
      behind_ = {static_cast<std::uint32_t>(id)};
    }
  }

  PrepareReport run() {
    for (const std::string& path : options_.files) total_ += size_of_text(path);
    if (!writer_.warning().empty()) console_.line(writer_.warning());
    ZERO_CHECK(total_ > 0, "the texts are empty: {} file(s), 0 bytes", options_.files.size());
    split_ = total_ - static_cast<std::int64_t>(static_cast<double>(total_) * options_.validation);
    for (const std::string& path : options_.files) {
      options_.json_field.empty() ? read(path) : read_lines(path);
    }
    PrepareReport report;
    report.text_bytes = done_;
    report.vocabulary = encoder_.tokenizer().vocabulary();
    report.documents = documents_;
    report.before = encoder_.names_of(before_);
    report.behind = encoder_.names_of(behind_);
    writer_.commit(report);
    console_.end_progress();
    return report;
  }

 private:
  std::ifstream open(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ZERO_CHECK(file, "{}: cannot read the text: {}", path, std::strerror(errno));
    return file;
  }

  void read(const std::string& path) {
    std::ifstream file = open(path);
    const std::int64_t begin = done_;
    std::string text;
    std::vector<char> chunk(kChunk);
    continues_ = false;
    while (file) {
      // A chunk never crosses the boundary between training and validation.
      const std::int64_t pending = done_ + static_cast<std::int64_t>(text.size());
      const std::int64_t left =
          split_ > pending ? split_ - pending : static_cast<std::int64_t>(kChunk);
      file.read(chunk.data(), std::min<std::int64_t>(left, static_cast<std::int64_t>(kChunk)));
      text.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
      if (pending == begin) look_at_beginning(path, text);
      const bool at_split = done_ + static_cast<std::int64_t>(text.size()) == split_;
      const std::size_t cut = at_split || text.size() < kChunk ? 0 : encoder_.cut(text);
      if (cut > 0) {
        encode(text.substr(0, cut), path, begin);
        text.erase(0, cut);
        continues_ = true;
      } else if (at_split || text.size() >= 16 * kChunk) {
        const std::size_t whole = text.size() - unfinished_bytes(text);
        if (at_split) split_ = done_ + static_cast<std::int64_t>(whole);
        encode(text.substr(0, whole), path, begin);
        text.erase(0, whole);
        continues_ = false;
      }
    }
    ZERO_CHECK(!file.bad(), "{}: reading the text failed", path);
    encode(text, path, begin);
    end_document();
  }

  void read_lines(const std::string& path) {
    std::ifstream file = open(path);
    const std::int64_t begin = done_;
    bool said = false;
    std::string line;
    for (std::int64_t number = 1; std::getline(file, line); ++number) {
      const std::int64_t end =
          done_ + static_cast<std::int64_t>(line.size()) + (file.eof() ? 0 : 1);
      if (number == 1) check_is_text(path, line);
      if (line.find_first_not_of(" \t\r") != std::string::npos) {
        const std::string where = fmt::format("{}: line {}", path, number);
        const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
        ZERO_CHECK(object.is_object(), "{}: expected a JSON object in UTF-8{}", where,
                   json_line_advice(line, file.eof()));
        const auto text = object.find(options_.json_field);
        ZERO_CHECK(text != object.end() && text->is_string(),
                   "{}: {} is {}, expected a text; give --json-field the member that is one", where,
                   options_.json_field, text == object.end() ? "missing" : text->type_name());
        const auto& document = text->get_ref<const std::string&>();
        const bool looks = !said && done_ - begin < static_cast<std::int64_t>(kChunk);
        said = said || (looks && say_words(path, document));
        put_text(encoder_.begin(document));
        end_document();
      }
      done_ = end;
      progress();
    }
    ZERO_CHECK(!file.bad(), "{}: reading the text failed", path);
  }

  /// The first bytes of a file say whether it is a text.
  void look_at_beginning(const std::string& path, std::string& text) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    check_is_text(path, text);
    if (encoder_.takes_bytes()) return;
    const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
    ZERO_CHECK(!line.starts_with('{') || !nlohmann::json::accept(line),
               "{}: is JSON, not a text; of JSON lines --json-field NAME takes the member that is "
               "the text",
               path);
    if (text.starts_with(kByteOrderMark)) {
      text.erase(0, kByteOrderMark.size());
      done_ += static_cast<std::int64_t>(kByteOrderMark.size());
    }
    say_words(path, text);
  }

  /// Says which special tokens in `text` stay words; false if there are none.
  bool say_words(const std::string& path, std::string_view text) {
    const std::vector<std::string> names = encoder_.words_like_tokens(text);
    if (names.empty()) return false;
    console_.line(
        fmt::format("{}: {} in it stay words; with --special they are the tokenizer's tokens", path,
                    fmt::join(names, ", ")));
    return true;
  }

  /// `begin`: of the file at `path`, among the bytes of all.
  void encode(const std::string& text, const std::string& path, std::int64_t begin) {
    if (text.empty()) return;
    if (const auto invalid = first_invalid_utf8(text); invalid && !encoder_.takes_bytes()) {
      fail("{}: byte {} is not UTF-8; expected a text in UTF-8 (or --tokenizer bytes)", path,
           done_ - begin + static_cast<std::int64_t>(*invalid));
    }
    put_text(continues_ ? encoder_.go_on(text) : encoder_.begin(text));
    done_ += static_cast<std::int64_t>(text.size());
    progress();
  }

  /// Special tokens written in a document may begin and end it: none is put there twice.
  void begin_document(const std::vector<std::uint32_t>& tokens, std::int64_t position) {
    begun_ = true;
    const bool there =
        options_.special && std::ranges::mismatch(before_, tokens).in1 == before_.end();
    if (!there && !before_.empty()) put(before_, position);
  }

  /// The next tokens of a document.
  void put_text(const std::vector<std::uint32_t>& tokens) {
    if (!begun_) begin_document(tokens, done_);
    put(tokens, done_);
    if (!tokens.empty()) ends_ = options_.special && std::ranges::count(behind_, tokens.back()) > 0;
  }

  void end_document() {
    ++documents_;
    if (!begun_) begin_document({}, last_);
    if (!ends_ && !behind_.empty()) put(behind_, last_);
    begun_ = ends_ = false;
  }

  void put(const std::vector<std::uint32_t>& tokens, std::int64_t position) {
    if (position < split_) {
      writer_.train(tokens);
    } else {
      writer_.validation(tokens);
    }
    last_ = position;
    tokens_ += static_cast<std::int64_t>(tokens.size());
  }

  void progress() {
    const double seconds = std::max(1e-3, seconds_since(start_));
    const double speed = static_cast<double>(done_) / seconds;
    const std::string text =
        fmt::format("{:5.1f} %  {} of {}  {} tokens  {}/s  {} left",
                    100.0 * static_cast<double>(done_) / static_cast<double>(total_),
                    size_text(done_), size_text(total_), count_text(static_cast<double>(tokens_)),
                    bytes_text(speed), duration_text(static_cast<double>(total_ - done_) / speed));
    console_.progress(text, start_);
  }

  const PrepareOptions& options_;
  Console& console_;
  TextEncoder encoder_;
  std::vector<std::uint32_t> before_;  // each document
  std::vector<std::uint32_t> behind_;
  ShardWriter writer_;
  std::int64_t total_ = 0;
  std::int64_t split_ = 0;  // the byte at which validation starts
  std::int64_t done_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t last_ = 0;  // the byte at which the last tokens began
  std::int64_t documents_ = 0;
  bool continues_ = false;  // the text, behind a cut of the same file
  bool begun_ = false;      // the document
  bool ends_ = false;       // the document's last token is the one behind it
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
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
  const std::atomic<bool> never{false};
  std::vector<std::string> digests;
  for (const std::string& file : files) {
    if (!may_be_token_file(file)) continue;
    digests.push_back(digest_path(file));
    write_digest(digests.back(), digest_of(TokenFile(file, TokenFile::Digest::ignored), never));
  }
  ZERO_CHECK(!digests.empty(),
             "--digest: {} and the others are no token files by their names, but lie beside them; "
             "name the .bin files",
             files.front());
  return digests;
}

}  // namespace zero
