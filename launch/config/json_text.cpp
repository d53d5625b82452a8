// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/message_text.h"
#include "launch/config/configuration.h"

namespace zero {
namespace {

/// Overwrites comments and trailing commas with blanks, so that positions stay those of the file.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text) {}

  /// Where a value ends that another follows without a comma, 0-based: the first such place, if
  /// any. For after run().
  std::optional<std::size_t> missing_comma() const { return missing_comma_; }

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] == '"') {
        skip_string();
      } else if (text_[at_] == '#' || starts("//")) {
        blank_until("\n", 0);
      } else if (starts("/*")) {
        blank_until("*/", 2);
      } else {
        visit(text_[at_]);
        ++at_;
      }
    }
    return std::move(text_);
  }

 private:
  bool starts(std::string_view what) const {
    return std::string_view(text_).substr(at_, what.size()) == what;
  }

  void skip_string() {
    const bool after_value =
        previous_ != '{' && previous_ != '[' && previous_ != ',' && previous_ != ':';
    if (after_value && !missing_comma_) missing_comma_ = last_;
    comma_ = std::string::npos;
    previous_ = '"';
    for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    last_ = at_++;
  }

  void blank_until(std::string_view end, std::size_t keep) {
    const std::size_t found = text_.find(end, at_ + (keep > 0 ? 2 : 0));
    const std::size_t stop = found == std::string::npos ? text_.size() : found + keep;
    for (; at_ < stop; ++at_) {
      if (text_[at_] != '\n') text_[at_] = ' ';
    }
  }

  void visit(char c) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (c == ',') {
      const bool after_value = previous_ != '{' && previous_ != '[' && previous_ != ',';
      comma_ = after_value ? at_ : std::string::npos;
    } else if ((c == '}' || c == ']') && comma_ != std::string::npos) {
      text_[comma_] = ' ';
      comma_ = std::string::npos;
    } else if (!blank) {
      comma_ = std::string::npos;
    }
    if (blank) return;
    previous_ = c;
    last_ = at_;
  }

  std::string text_;
  std::size_t at_ = 0;
  char previous_ = '{';   // the last token's last character
  std::size_t last_ = 0;  // its place
  std::optional<std::size_t> missing_comma_;
  std::size_t comma_ = std::string::npos;  // the last token, if it is a comma after a value
};

std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n');
  const std::size_t column =
      start == std::string_view::npos ? before.size() : before.size() - start - 1;
  return fmt::format("line {} column {}", line, std::max<std::size_t>(column, 1));
}

/// The reason in nlohmann's message, without its prefix and position.
std::string reason(const std::string& what) {
  std::size_t at = what.find("while parsing");
  if (at == std::string::npos)
    at = what.rfind("] ") == std::string::npos ? 0 : what.rfind("] ") + 2;
  return what.substr(at);
}

/// What to do about a text that is another program's: HJSON, which DeepSpeed reads too, or YAML.
std::string other_language(std::string_view plain, std::size_t byte) {
  const auto in_word = [&](std::size_t at) {
    return at < plain.size() &&
           (std::isalnum(static_cast<unsigned char>(plain[at])) != 0 || plain[at] == '_');
  };
  std::size_t begin = std::min(byte, plain.size());
  while (begin > 0 && in_word(begin - 1)) --begin;
  std::size_t end = begin;
  while (in_word(end)) ++end;
  const std::size_t colon = plain.find_first_not_of(" \t", end);
  if (begin == end || colon == std::string_view::npos || plain[colon] != ':') return "";
  const std::string_view word = plain.substr(begin, end - begin);
  const std::size_t first = plain.find_first_not_of(" \t\r\n");
  if (first == begin) {
    return fmt::format(
        "; \"{}:\" begins no JSON. YAML, as accelerate writes it, is not read: write "
        "an object of DeepSpeed's keys, such as {{\"zero_optimization\": "
        "{{\"stage\": 3}}}}, with offload_optimizer_device as "
        "zero_optimization.offload_optimizer.device",
        word);
  }
  return fmt::format("; write \"{}\" in double quotes, as all keys and texts", word);
}

}  // namespace

nlohmann::json parse_json_text(std::string_view text, std::string_view source) {
  using Outcome = ReadJson::Outcome;
  Blanker blanker(text);
  const std::string plain = blanker.run();
  ReadJson read = read_json(plain);
  switch (read.outcome) {
    case Outcome::not_json: {
      const auto comma = blanker.missing_comma();
      const std::string why = reason(read.what);
      const bool no_comma = comma && why.find("unexpected string literal") != std::string::npos &&
                            !why.ends_with("expected ':'");
      fail("{}: {}: not JSON: {}{}", source, position(plain, read.byte), why,
           no_comma ? fmt::format("; a comma is missing behind {}", position(plain, *comma + 1))
                    : other_language(plain, read.byte));
    }
    case Outcome::bad_number:  // outside the range of a double
      fail("{}: {}; correct the number", source, reason(read.what));
    case Outcome::deep:
      fail("{}: objects and lists are nested deeper than {} levels; take some out", source,
           kDeepestTree);
    case Outcome::key_twice:
      fail("{}: key \"{}\" is given twice in one object; keep one of them", source,
           printable_line(read.what));
    case Outcome::good:
      break;
  }
  return std::move(read.value);
}

std::string read_json_text(const std::string& path, std::string_view flag) {
  namespace fs = std::filesystem;
  constexpr std::uintmax_t kMost = std::uintmax_t{16} << 20;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const auto refuse = [&](std::string_view why) {
    fail("{}: {} cannot be read: {}; give an existing JSON file", flag, printable_line(path), why);
  };
  if (!fs::exists(status)) refuse(error ? error.message() : "it does not exist");
  if (fs::is_directory(status)) refuse("it is a folder, expected a regular file");
  if (!fs::is_regular_file(status)) refuse("it is a pipe or device, expected a regular file");
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) refuse(error.message());
  ZERO_CHECK(bytes <= kMost, "{}: {} has {} bytes, expected at most {} (16 MiB)", flag,
             printable_line(path), bytes, kMost);
  if (bytes == 0) refuse("it is an empty file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  if (!file.read(text.data(), std::ssize(text))) {
    refuse(errno != 0 ? std::strerror(errno) : "it has become shorter");
  }
  return text;
}

nlohmann::json read_json_file(const std::string& path) {
  return parse_json_text(read_json_text(path, "--config"), path);
}

}  // namespace zero
