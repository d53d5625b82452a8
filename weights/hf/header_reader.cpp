// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "weights/hf/file_header.h"

namespace zero {
namespace {

constexpr std::size_t kMostTensors = std::size_t{1} << 18;  // twice the largest models', all files

std::string known_types() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kFileTypes; ++i) names.push_back(name_of(static_cast<FileType>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Handles the events of the JSON parser. The states and their transitions:
///     start -> top { "__metadata__": metadata { text: text }, name: entry { field: value } } ->
///     end
/// Any other event is an error; refused input is not stored, so a hostile header costs no memory.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  FileHeader take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(fmt::format("the number {}", printable_line(text)));
  }
  bool number_integer(number_integer_t value) override {
    if (in_list_) refuse("{} holds {}, which is negative", field_name(), value);
    return unexpected(fmt::format("the number {}", value));
  }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool key(string_t& name) override;
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail("{}: offset {}: the header is not JSON: {}", file_,
         FileHeader::kLengthBytes + static_cast<std::int64_t>(std::max<std::size_t>(position, 1)) -
             1,
         printable_line(error.what()));
  }

 private:
  enum class Where { start, top, metadata, entry, end };
  enum class Field { dtype, shape, data_offsets, none };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  std::string_view field_name() const { return kFields.at(static_cast<std::size_t>(field_)); }
  std::string what() const;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: {}: {}", file_, what(), fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] bool unexpected(std::string_view found) const;

  const std::string& file_;
  FileHeader header_;
  Where where_ = Where::start;
  Field field_ = Field::none;
  bool in_list_ = false;
  std::string name_;  // of the current tensor or metadata text
  std::unordered_set<std::string> names_;
  std::set<Field> fields_;  // of the current tensor
  std::vector<std::int64_t> offsets_;
};

std::string HeaderReader::what() const {
  if (where_ == Where::metadata) return fmt::format("metadata \"{}\"", printable_line(name_));
  if (name_.empty() && header_.tensors.empty()) return "header at offset 8";
  return fmt::format("tensor \"{}\" in the header at offset 8", printable_line(name_));
}

bool HeaderReader::unexpected(std::string_view found) const {
  switch (where_) {
    case Where::start:
    case Where::end:
      refuse("found {}, expected an object of tensors", found);
    case Where::top:
      refuse("found {}, expected an object with dtype, shape and data_offsets", found);
    case Where::metadata:
      refuse("found {}, expected a string", found);
    case Where::entry:
      break;
  }
  if (field_ == Field::dtype) refuse("dtype is {}, expected a string", found);
  refuse("{} holds {}, expected {} that fit 63 bits", field_name(), found,
         field_ == Field::shape ? "a list of integers" : "two integers");
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (!in_list_) return unexpected(fmt::format("the number {}", value));
  if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
    return unexpected(fmt::format("the number {}", value));
  }
  auto& list = field_ == Field::shape ? header_.tensors.back().shape : offsets_;
  if (field_ == Field::data_offsets && list.size() == 2) refuse("data_offsets holds more than two");
  list.push_back(static_cast<std::int64_t>(value));
  return true;
}

bool HeaderReader::string(string_t& value) {
  if (where_ == Where::metadata) {
    const bool added = header_.metadata.emplace(name_, std::move(value)).second;
    if (!added) refuse("is given twice");
    return true;
  }
  if (where_ != Where::entry || field_ != Field::dtype) return unexpected("a string");
  const std::optional<FileType> type = file_type_from_name(value);
  if (!type)
    refuse("unknown dtype \"{}\", expected one of {}", printable_line(value), known_types());
  header_.tensors.back().type = *type;
  return true;
}

bool HeaderReader::key(string_t& name) {
  if (where_ == Where::entry) {
    const auto found = std::find(kFields.begin(), kFields.end(), name);
    if (found == kFields.end()) {
      refuse("unknown field \"{}\", expected dtype, shape and data_offsets", printable_line(name));
    }
    field_ = static_cast<Field>(found - kFields.begin());
    if (!fields_.insert(field_).second) refuse("{} is given twice", field_name());
    return true;
  }
  name_ = std::move(name);
  if (where_ == Where::top && !names_.insert(name_).second) {
    refuse("is named twice; names must be unique");
  }
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (where_ == Where::start) {
    where_ = Where::top;
  } else if (where_ == Where::top && name_ == "__metadata__") {
    where_ = Where::metadata;
  } else if (where_ == Where::top) {
    where_ = Where::entry;
    if (header_.tensors.size() == kMostTensors) {
      fail("{}: the header has more than {} tensors, which no model's file has", file_,
           kMostTensors);
    }
    header_.tensors.push_back({name_, FileType::f32, {}, 0, 0});
    fields_.clear();
    offsets_.clear();
  } else {
    return unexpected("an object");
  }
  return true;
}

bool HeaderReader::end_object() {
  if (where_ == Where::entry) {
    for (const Field field : {Field::dtype, Field::shape, Field::data_offsets}) {
      field_ = field;
      if (!fields_.contains(field)) refuse("{} is missing", field_name());
    }
    if (offsets_.size() != 2) refuse("data_offsets holds {} numbers, expected 2", offsets_.size());
    header_.tensors.back().begin = offsets_[0];
    header_.tensors.back().end = offsets_[1];
  }
  where_ = where_ == Where::top ? Where::end : Where::top;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  const bool list = where_ == Where::entry && field_ != Field::dtype && !in_list_;
  if (!list) return unexpected("a list");
  in_list_ = true;
  return true;
}

bool HeaderReader::end_array() {
  in_list_ = false;
  return true;
}

}  // namespace

FileHeader read_header_text(const std::string& file, std::string_view json) {
  ZERO_CHECK(!json.empty() && json.front() == '{',
             "{}: offset 8: the header is not JSON: found {}, expected '{{'", file,
             json.empty() ? "nothing" : fmt::format("byte 0x{:02x}", json.front() & 0xff));
  // The parser would take a NUL for the end of its text and leave the rest unread.
  const std::size_t nul = json.find('\0');
  ZERO_CHECK(nul == json.npos, "{}: offset {}: the header is not JSON: it holds a NUL byte", file,
             static_cast<std::size_t>(FileHeader::kLengthBytes) + nul);
  HeaderReader reader(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

FileHeader read_header(files::InputFile& file) {
  const std::int64_t size = file.size();
  ZERO_CHECK(size >= FileHeader::kLengthBytes,
             "{}: is no safetensors file: it has {} bytes, expected at least {} that tell the "
             "header's length",
             file.path(), size, FileHeader::kLengthBytes);
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  ZERO_CHECK(length <= static_cast<std::uint64_t>(FileHeader::kLargest),
             "{}: offset 0: header length {} is over the format's limit of {} bytes; is it a "
             "safetensors file?",
             file.path(), length, FileHeader::kLargest);
  const auto bytes = static_cast<std::int64_t>(length);
  ZERO_CHECK(bytes <= size - FileHeader::kLengthBytes,
             "{}: offset 0: header length {} reaches offset {}, beyond the end of the file at {}",
             file.path(), bytes, FileHeader::kLengthBytes + bytes, size);
  std::string json(static_cast<std::size_t>(bytes), '\0');
  file.read(FileHeader::kLengthBytes, std::as_writable_bytes(std::span(json)));
  return parse_header(file.path(), json, size);
}

}  // namespace zero
