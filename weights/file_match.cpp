// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/file_match.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "architecture/family.h"
#include "base/error.h"
#include "base/message_text.h"
#include "weights/hf/advice.h"

namespace zero {
namespace {

/// Elements that are read at a time.
constexpr std::int64_t kChunk = std::int64_t{1} << 18;

bool readable(FileType type) {
  return type == FileType::f32 || type == FileType::bf16 || type == FileType::f16;
}

void check_source(const FileSource& source, const LayoutTensor& expected) {
  const FileTensor& found = *source.tensor;
  ZERO_CHECK(found.shape == expected.shape, "{}: found shape {}, expected {}{}", place_of(source),
             shape_text(found.shape), shape_text(expected.shape), tensor_advice(found));
  ZERO_CHECK(readable(found.type), "{}: found dtype {}, expected F32, BF16 or F16{}",
             place_of(source), name_of(found.type), tensor_advice(found));
}

/// Calls body(begin, count) for runs of at most kChunk of `total` elements.
template <typename Body>
void for_chunks(std::int64_t total, const Body& body) {
  for (std::int64_t begin = 0; begin < total; begin += kChunk) {
    body(begin, std::min(kChunk, total - begin));
  }
}

/// Fills `values` with elements of a tensor from `first` on.
void read_values(const FileSource& from, std::int64_t first, std::span<float> values,
                 std::vector<std::byte>& staging) {
  const SafetensorsReader& file = *from.file;
  const FileTensor& source = *from.tensor;
  if (source.type == FileType::f32) {
    file.read(source, first, std::as_writable_bytes(values));
    return;
  }
  staging.resize(values.size() * static_cast<std::size_t>(size_of(source.type)));
  file.read(source, first, staging);
  decode(source.type, staging, values);
}

/// Throws unless the elements have equal numeric values in two tensors.
void check_equal(const FileSource& one, const FileSource& other, std::int64_t first,
                 std::int64_t total) {
  std::vector<float> values[2];
  std::vector<std::byte> staging;
  for_chunks(total, [&](std::int64_t begin, std::int64_t count) {
    for (int i = 0; i < 2; ++i) {
      values[i].resize(static_cast<std::size_t>(count));
      read_values(i == 0 ? one : other, first + begin, values[i], staging);
    }
    for (std::size_t i = 0; i < values[0].size(); ++i) {
      const std::int64_t element = first + begin + static_cast<std::int64_t>(i);
      ZERO_CHECK(
          std::memcmp(&values[0][i], &values[1][i], sizeof(float)) == 0,
          "{} (element {}, offset {}): found {}, expected {} as in \"{}\": "
          "the model has one tensor for both; if they are meant to differ, as transformers 5 "
          "takes them, set tie_word_embeddings to false in config.json",
          place_of(one), element, one.file->offset_of(*one.tensor, element), values[0][i],
          values[1][i], printable_line(other.tensor->name));
    }
  });
}

/// Builds a FileMatch, one file after another.
class Matcher {
 public:
  using Others = std::function<bool(std::string_view bare_name, const FileSource& tensor)>;

  Matcher(std::span<const LayoutTensor> tensors, const NameMap& names, const Others& others)
      : tensors_(tensors), names_(names), others_(others) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      wanted_.emplace(names.bare(tensors[i].name), i);
    }
    match_.sources.resize(tensors.size());
  }

  void look_through(const SafetensorsReader& file) {
    for (const FileTensor& found : file.header().tensors) place({&file, &found});
  }
  /// The match; a tensor that files hold under its second name alone is read there.
  FileMatch take() {
    std::erase_if(match_.aliases, [&](const FileMatch::Alias& alias) {
      FileSource& source = match_.sources[alias.tensor];
      const bool alone = source.tensor == nullptr;
      if (alone) source = alias.source;
      return alone;
    });
    return std::move(match_);
  }

 private:
  void place(const FileSource& found) {
    const std::string_view bare = names_.bare(found.tensor->name);
    if (const auto at = wanted_.find(bare); at != wanted_.end()) {
      FileSource& source = match_.sources[at->second];
      ZERO_CHECK(source.tensor == nullptr, "{} and {} are both \"{}\" of the model; expected one",
                 place_of(source), place_of(found), tensors_[at->second].name);
      check_source(found, tensors_[at->second]);
      source = found;
      return;
    }
    if (others_ && others_(bare, found)) return;
    const NameMap::Alias* alias = names_.alias(bare);
    const auto same = alias != nullptr ? wanted_.find(names_.bare(alias->tensor)) : wanted_.end();
    if (same != wanted_.end()) {
      check_source(found, tensors_[same->second]);
      match_.aliases.push_back({found, same->second});
      return;
    }
    ZERO_CHECK(names_.ignores(bare),
               "{}: found {} {}, expected no tensor of that name: the model has {} others, and "
               "what is left out by name is {}{}",
               place_of(found), name_of(found.tensor->type), shape_text(found.tensor->shape),
               tensors_.size(), names_.ignored_text(), tensor_advice(*found.tensor));
  }

  std::span<const LayoutTensor> tensors_;
  const NameMap& names_;
  const Others& others_;
  std::unordered_map<std::string_view, std::size_t> wanted_;
  FileMatch match_;
};

std::string files_text(std::span<const SafetensorsReader> files) {
  if (files.size() == 1) return files[0].path();
  return fmt::format("{} and {} other files", files[0].path(), files.size() - 1);
}

}  // namespace

std::string place_of(const FileSource& source) {
  return fmt::format("{}: tensor \"{}\"", source.file->path(), printable_line(source.tensor->name));
}

FileMatch match_files(std::span<const SafetensorsReader> files,
                      std::span<const LayoutTensor> tensors, const NameMap& names,
                      const std::function<bool(std::string_view, const FileSource&)>& others) {
  Matcher matcher(tensors, names, others);
  std::size_t count = 0;
  for (const SafetensorsReader& file : files) {
    matcher.look_through(file);
    count += file.header().tensors.size();
  }
  FileMatch match = matcher.take();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ZERO_CHECK(match.sources[i].tensor != nullptr,
               "{}: tensor \"{}\": found none of that name among {} (with or without \"{}\"), "
               "expected shape {}{}",
               files_text(files), tensors[i].name, count, names.prefix,
               shape_text(tensors[i].shape),
               tensors[i].name == "lm_head.weight"
                   ? "; if the token embedding is the head too, set tie_word_embeddings to true in "
                     "config.json"
                   : "");
  }
  return match;
}

void check_aliases(const FileMatch& match, const HeldElements& held) {
  for (const FileMatch::Alias& alias : match.aliases) {
    held(alias.tensor, [&](std::int64_t begin, std::int64_t count) {
      check_equal(alias.source, match.sources[alias.tensor], begin, count);
    });
  }
}

void read_elements(const FileMatch& match, const HeldElements& held, const SetElements& set) {
  std::vector<std::byte> staging;
  std::vector<float> values(static_cast<std::size_t>(kChunk));
  for (std::size_t i = 0; i < match.sources.size(); ++i) {
    held(i, [&](std::int64_t first, std::int64_t total) {
      for_chunks(total, [&](std::int64_t begin, std::int64_t count) {
        const std::span<float> chunk = std::span(values).first(static_cast<std::size_t>(count));
        read_values(match.sources[i], first + begin, chunk, staging);
        set(i, first + begin, View::of(chunk));
      });
    });
  }
}

std::vector<LayoutTensor> tensors_of_files(const DecoderShape& shape) {
  std::vector<LogicalTensor> tensors;
  for (const DecoderParameter& each : all_parameters(shape)) {
    tensors.push_back({.name = each.name, .shape = each.shape()});
  }
  return lay_out_checkpoint(tensors, file_names(shape),
                            {.file_bytes = std::numeric_limits<std::int64_t>::max()})
      .tensors();
}

WeightFiles::WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape)
    : WeightFiles(
          std::move(files), shape,
          {[](std::size_t /*parameter*/) { return false; },
           [](std::string_view /*bare_name*/, const FileSource& /*tensor*/) { return false; }}) {}

WeightFiles::WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape,
                         const Codes& codes)
    : names_(file_names(shape)), files_(std::move(files)), layout_(tensors_of_files(shape)) {
  std::erase_if(layout_, [&](const LayoutTensor& each) { return codes.holds(each.source); });
  match_ = match_files(files_, layout_, names_, codes.takes);
  check_aliases(match_, [&](std::size_t tensor, const FileRange& visit) {
    visit(0, layout_[tensor].count());
  });
}

void WeightFiles::read(std::size_t tensor, std::int64_t begin, std::span<float> values) const {
  const std::int64_t end = begin + static_cast<std::int64_t>(values.size());
  const auto held = [&](std::size_t index, const FileRange& visit) {
    const LayoutTensor& piece = layout_[index];
    if (piece.source != tensor) return;
    const std::int64_t from = std::max(begin, piece.source_begin);
    const std::int64_t to = std::min(end, piece.source_begin + piece.count());
    if (from < to) visit(from - piece.source_begin, to - from);
  };
  read_elements(match_, held, [&](std::size_t index, std::int64_t at, const View& read) {
    const auto from = read.as<const float>();
    std::ranges::copy(from, values.begin() + (layout_[index].source_begin + at - begin));
  });
}

}  // namespace zero
