// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_parts.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "checkpoint/convert.h"

namespace zero {
namespace {

/// Elements per chunk if dtypes differ: the only memory that reading and writing allocate.
constexpr std::int64_t kChunk = std::int64_t{1} << 18;

bool readable(FileType type) {
  return type == FileType::f32 || type == FileType::bf16 || type == FileType::f16;
}

void check_source(const SafetensorsReader& file, const FileTensor& found,
                  const LogicalTensor& expected) {
  ZERO_CHECK(found.shape == expected.shape, "{}: tensor \"{}\": found shape {}, expected {}",
             file.path(), found.name, shape_text(found.shape), shape_text(expected.shape));
  ZERO_CHECK(readable(found.type), "{}: tensor \"{}\": found dtype {}, expected F32, BF16 or F16",
             file.path(), found.name, name_of(found.type));
}

/// Throws unless `part` is inside `tensor`.
void check_part(const LogicalTensor& tensor, const LogicalTensor::Part& part) {
  const std::int64_t count = element_count(tensor.shape).value_or(-1);
  ZERO_CHECK(part.begin >= 0 && part.begin <= count - part.values.count(),
             "tensor \"{}\" of {} elements has a part of {} elements from {} on", tensor.name,
             count, part.values.count(), part.begin);
}

std::span<std::byte> bytes_of(const View& view) {
  return {static_cast<std::byte*>(view.data()), static_cast<std::size_t>(view.bytes())};
}

/// Calls body(begin, count) for runs of at most kChunk of `total` elements.
template <typename Body>
void for_chunks(std::int64_t total, const Body& body) {
  for (std::int64_t begin = 0; begin < total; begin += kChunk) {
    body(begin, std::min(kChunk, total - begin));
  }
}

/// Fills `values`, in host memory, with elements of a tensor from `first` on.
void read_values(const FileSource& from, std::int64_t first, const View& values,
                 std::vector<std::byte>& staging) {
  const SafetensorsReader& file = *from.file;
  const FileTensor& source = *from.tensor;
  if (source.type == file_type_of(values.dtype())) {
    file.read(source, first, bytes_of(values));
    return;
  }
  for_chunks(values.count(), [&](std::int64_t begin, std::int64_t count) {
    staging.resize(static_cast<std::size_t>(count * size_of(source.type)));
    file.read(source, first + begin, staging);
    decode(source.type, staging, values.slice(begin, count));
  });
}

/// Writes `values`, in host memory, as elements of a tensor from `first` on.
void write_values(const SafetensorsWriter& file, const std::string& name, std::int64_t first,
                  const View& values, std::vector<float>& staging) {
  if (values.dtype() == DType::fp32) return file.write(name, first, bytes_of(values));
  for_chunks(values.count(), [&](std::int64_t begin, std::int64_t count) {
    staging.resize(static_cast<std::size_t>(count));
    decode(file_type_of(values.dtype()), bytes_of(values.slice(begin, count)),
           View::of(std::span(staging)));
    file.write(name, first + begin, std::as_bytes(std::span(staging)));
  });
}

/// Throws unless the elements of `part` have equal numeric values in two tensors.
void check_equal(const FileSource& one, const FileSource& other, const LogicalTensor::Part& part) {
  std::vector<float> values[2];
  std::vector<std::byte> staging;
  for_chunks(part.values.count(), [&](std::int64_t begin, std::int64_t count) {
    for (int i = 0; i < 2; ++i) {
      const FileSource& source = i == 0 ? one : other;
      staging.resize(static_cast<std::size_t>(count * size_of(source.tensor->type)));
      values[i].resize(static_cast<std::size_t>(count));
      source.file->read(*source.tensor, part.begin + begin, staging);
      decode(source.tensor->type, staging, View::of(std::span(values[i])));
    }
    for (std::size_t i = 0; i < values[0].size(); ++i) {
      const std::int64_t element = part.begin + begin + static_cast<std::int64_t>(i);
      ZERO_CHECK(std::memcmp(&values[0][i], &values[1][i], sizeof(float)) == 0,
                 "{}: tensor \"{}\" (element {}, offset {}): found {}, expected {} as in \"{}\": "
                 "the model has one tensor for both",
                 one.file->path(), one.tensor->name, element,
                 one.file->offset_of(*one.tensor, element), values[0][i], values[1][i],
                 other.tensor->name);
    }
  });
}

/// Builds a FileMatch, one file after another.
class Matcher {
 public:
  Matcher(std::span<const LogicalTensor> tensors, const NameMap& names)
      : tensors_(tensors), names_(names) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      wanted_.emplace(names.bare(tensors[i].name), i);
    }
    match_.sources.resize(tensors.size());
  }

  void look_through(const SafetensorsReader& file) {
    for (const FileTensor& found : file.header().tensors) place(file, found);
  }
  const FileMatch& match() const { return match_; }

 private:
  void place(const SafetensorsReader& file, const FileTensor& found) {
    const std::string_view bare = names_.bare(found.name);
    if (const auto at = wanted_.find(bare); at != wanted_.end()) {
      FileSource& source = match_.sources[at->second];
      ZERO_CHECK(source.tensor == nullptr,
                 "{}: tensors \"{}\" and \"{}\" are both \"{}\" of the model", file.path(),
                 source.tensor->name, found.name, tensors_[at->second].name);
      check_source(file, found, tensors_[at->second]);
      source = {&file, &found};
      return;
    }
    const NameMap::Alias* alias = names_.alias(bare);
    const auto same = alias != nullptr ? wanted_.find(names_.bare(alias->tensor)) : wanted_.end();
    if (same != wanted_.end()) {
      check_source(file, found, tensors_[same->second]);
      match_.aliases.push_back({{&file, &found}, same->second});
      return;
    }
    ZERO_CHECK(names_.ignores(bare),
               "{}: tensor \"{}\": found {} {}, expected no tensor of that name: the model has {} "
               "others, and what is left out by name is {}",
               file.path(), found.name, name_of(found.type), shape_text(found.shape),
               tensors_.size(), names_.ignored_text());
  }

  std::span<const LogicalTensor> tensors_;
  const NameMap& names_;
  std::unordered_map<std::string_view, std::size_t> wanted_;
  FileMatch match_;
};

std::string files_text(std::span<const SafetensorsReader> files) {
  if (files.size() == 1) return files[0].path();
  return fmt::format("{} and {} other files", files[0].path(), files.size() - 1);
}

/// Elements [begin, end) of `whole` as a tensor with another name and shape.
LogicalTensor cut(const LogicalTensor& whole, std::int64_t begin, std::int64_t end) {
  LogicalTensor piece{.name = {},
                      .shape = whole.shape,
                      .kind = whole.kind,
                      .trainable = whole.trainable,
                      .parts = {}};
  for (const LogicalTensor::Part& part : whole.parts) {
    const std::int64_t first = std::max(begin, part.begin);
    const std::int64_t last = std::min(end, part.begin + part.values.count());
    if (first >= last) continue;
    piece.parts.push_back(
        {first - begin, part.values.slice(first - part.begin, last - first), part.primary});
  }
  return piece;
}

void split(const LogicalTensor& tensor, const NameMap::Split& names,
           std::vector<LogicalTensor>& pieces) {
  const std::int64_t rows =
      std::accumulate(names.pieces.begin(), names.pieces.end(), std::int64_t{0},
                      [](std::int64_t sum, const auto& piece) { return sum + piece.rows; });
  ZERO_CHECK(!tensor.shape.empty() && tensor.shape[0] == rows,
             "tensor \"{}\" of shape {} is split into {} rows; expected as many as it has",
             tensor.name, shape_text(tensor.shape), rows);
  const std::int64_t row = std::accumulate(tensor.shape.begin() + 1, tensor.shape.end(),
                                           std::int64_t{1}, std::multiplies<>());
  const std::size_t at = tensor.name.find("." + names.component + ".") + 1;
  std::int64_t begin = 0;
  for (const NameMap::Split::Piece& of : names.pieces) {
    LogicalTensor piece = cut(tensor, begin * row, (begin + of.rows) * row);
    piece.name = tensor.name;
    piece.name.replace(at, names.component.size(), of.name);
    piece.shape[0] = of.rows;
    pieces.push_back(std::move(piece));
    begin += of.rows;
  }
}

}  // namespace

std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names) {
  std::vector<LogicalTensor> result;
  for (const LogicalTensor& tensor : tensors) {
    const auto found =
        std::find_if(names.splits.begin(), names.splits.end(), [&](const NameMap::Split& each) {
          return tensor.name.find("." + each.component + ".") != std::string::npos;
        });
    if (found == names.splits.end()) {
      result.push_back(tensor);
    } else {
      split(tensor, *found, result);
    }
  }
  return result;
}

FileMatch match_files(std::span<const SafetensorsReader> files,
                      std::span<const LogicalTensor> tensors, const NameMap& names) {
  Matcher matcher(tensors, names);
  std::size_t count = 0;
  for (const SafetensorsReader& file : files) {
    matcher.look_through(file);
    count += file.header().tensors.size();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ZERO_CHECK(matcher.match().sources[i].tensor != nullptr,
               "{}: tensor \"{}\": found none of that name among {} (with or without \"{}\"), "
               "expected shape {}",
               files_text(files), tensors[i].name, count, names.prefix,
               shape_text(tensors[i].shape));
  }
  return matcher.match();
}

void check_aliases(std::span<const LogicalTensor> tensors, const FileMatch& match) {
  for (const FileMatch::Alias& alias : match.aliases) {
    for (const LogicalTensor::Part& part : tensors[alias.tensor].parts) {
      check_part(tensors[alias.tensor], part);
      check_equal(alias.source, match.sources[alias.tensor], part);
    }
  }
}

void read_parts(std::span<const LogicalTensor> tensors, const FileMatch& match,
                HostPieces& pieces) {
  std::vector<std::byte> staging;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (const LogicalTensor::Part& part : tensors[i].parts) {
      check_part(tensors[i], part);
      pieces.write(part.values, [&](std::int64_t begin, const View& values) {
        read_values(match.sources[i], part.begin + begin, values, staging);
      });
    }
  }
}

FileHeader layout_of(std::span<const LogicalTensor> tensors) {
  std::vector<FileTensor> listed;
  for (const LogicalTensor& tensor : tensors) {
    listed.push_back({tensor.name, FileType::f32, tensor.shape, 0, 0});
  }
  // Hugging Face's loader refuses files without this entry.
  return lay_out(std::move(listed), {{"format", "pt"}});
}

void write_parts(const SafetensorsWriter& file, std::span<const LogicalTensor> tensors,
                 HostPieces& pieces) {
  std::vector<float> staging;
  for (const LogicalTensor& tensor : tensors) {
    for (const LogicalTensor::Part& part : tensor.parts) {
      check_part(tensor, part);
      if (!part.primary) continue;
      pieces.read(part.values, [&](std::int64_t begin, const View& values) {
        write_values(file, tensor.name, part.begin + begin, values, staging);
      });
    }
  }
}

}  // namespace zero
