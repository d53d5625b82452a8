// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
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
    comma_ = std::string::npos;
    previous_ = '"';
    for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    ++at_;
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
    if (!blank) previous_ = c;
  }

  std::string text_;
  std::size_t at_ = 0;
  char previous_ = '{';                    // the last token's last character
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

}  // namespace

nlohmann::json parse_json_text(std::string_view text, std::string_view source) {
  using Outcome = ReadJson::Outcome;
  const std::string plain = Blanker(text).run();
  ReadJson read = read_json(plain);
  switch (read.outcome) {
    case Outcome::not_json:
      fail("{}: {}: not JSON: {}", source, position(plain, read.byte), reason(read.what));
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
