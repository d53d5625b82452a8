// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_layout.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "weights/hf/safetensors.h"

namespace zero {
namespace {

std::vector<std::int64_t> sizes_of(std::span<const LayoutFile> files) {
  std::vector<std::int64_t> sizes;
  for (const LayoutFile& file : files) sizes.push_back(file.bytes);
  return sizes;
}

void split(const LogicalTensor& tensor, const NameMap::Split& names,
           std::vector<LogicalTensor>& pieces) {
  std::int64_t rows = 0;
  for (const NameMap::Split::Piece& piece : names.pieces) rows += piece.rows;
  ZERO_CHECK(!tensor.shape.empty() && tensor.shape[0] == rows,
             "tensor \"{}\" of shape {} is split into {} rows; expected as many as it has",
             tensor.name, shape_text(tensor.shape), rows);
  const std::size_t at = tensor.name.find("." + names.component + ".") + 1;
  for (const NameMap::Split::Piece& of : names.pieces) {
    LogicalTensor piece = tensor;
    piece.name.replace(at, names.component.size(), of.name);
    piece.shape[0] = of.rows;
    pieces.push_back(std::move(piece));
  }
}

/// The tensors of files that hold `tensors`, without places, in the order of kinds and names.
std::vector<LayoutTensor> file_tensors(std::span<const LogicalTensor> tensors,
                                       const NameMap& names) {
  std::vector<LayoutTensor> result;
  std::array<std::size_t, kStateKinds.size()> listed{};
  for (const LogicalTensor& tensor : tensors) {
    ZERO_CHECK(tensor.kind != StateKind::gradient, "tensor \"{}\": checkpoints hold no gradients",
               tensor.name);
    const std::size_t source = listed.at(static_cast<std::size_t>(tensor.kind))++;
    std::int64_t begin = 0;
    for (LogicalTensor& piece : split_tensors(std::span(&tensor, 1), names)) {
      const std::optional<std::int64_t> count = element_count(piece.shape);
      ZERO_CHECK(count && *count <= std::numeric_limits<std::int64_t>::max() / kElementBytes,
                 "tensor \"{}\": shape {} of F32 does not fit 63 bits", piece.name,
                 shape_text(piece.shape));
      result.push_back(
          {{std::move(piece.name), std::move(piece.shape), tensor.kind, 0, 0}, source, begin});
      begin += *count;
    }
  }
  std::sort(result.begin(), result.end(), [](const LayoutTensor& a, const LayoutTensor& b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  });
  const auto twice = std::adjacent_find(result.begin(), result.end(),
                                        [](const LayoutTensor& a, const LayoutTensor& b) {
                                          return a.kind == b.kind && a.name == b.name;
                                        });
  ZERO_CHECK(twice == result.end(), "tensor \"{}\" ({}) is listed twice for one checkpoint",
             twice->name, name_of(twice->kind));
  return result;
}

/// Readers take the file for one of tensors, or for the list of these, by its name.
void check_small_name(const std::string& name) {
  ZERO_CHECK(is_plain_name(name) && name != kWeightIndex && !name.ends_with(".safetensors"),
             "a small file of a checkpoint is called \"{}\"; expected a plain name that is not {} "
             "and does not end with .safetensors",
             printable_line(name), kWeightIndex);
}

/// Collects the files of a layout and the places of the tensors in them.
class Writer {
 public:
  explicit Writer(const CheckpointLayoutOptions& options) : options_(options) {
    ZERO_CHECK(options.file_bytes > 0, "files of checkpoints are cut at {} bytes; expected a size",
               options.file_bytes);
  }

  /// Lays out the tensors of one kind, sorted by name, in files that are called
  /// STEM.safetensors, or STEM-00001-of-0000N.safetensors and so on. Returns the last components of
  /// their names, if there are several, by tensor.
  std::map<std::string, std::string> add_tensors(const std::string& stem,
                                                 std::span<LayoutTensor> tensors) {
    std::map<std::string, std::string> file_of_tensor;
    const std::vector<std::span<LayoutTensor>> parts = cut(tensors);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool alone = parts.size() == 1;
      const std::string number = alone ? "" : fmt::format("-{:05}-of-{:05}", i + 1, parts.size());
      const std::string name = fmt::format("{}{}.safetensors", stem, number);
      add_file(name, parts[i]);
      if (alone) continue;
      for (const LayoutTensor& tensor : parts[i]) {
        file_of_tensor.emplace(tensor.name, name.substr(name.find('/') + 1));
      }
    }
    return file_of_tensor;
  }

  void add_small(const std::string& name, std::string content) {
    const auto bytes = static_cast<std::int64_t>(content.size());
    files_.push_back({"weights/" + name, bytes, std::move(content)});
  }

  std::vector<LayoutFile> take_files() { return std::move(files_); }

 private:
  /// Runs of tensors that fit one file.
  std::vector<std::span<LayoutTensor>> cut(std::span<LayoutTensor> tensors) const {
    std::vector<std::span<LayoutTensor>> parts;
    std::size_t begin = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::int64_t size = tensors[i].count() * kElementBytes;
      if (i > begin && size > options_.file_bytes - bytes) {
        parts.push_back(tensors.subspan(begin, i - begin));
        begin = i;
        bytes = 0;
      }
      bytes += size;
    }
    if (begin < tensors.size()) parts.push_back(tensors.subspan(begin));
    return parts;
  }

  void add_file(const std::string& name, std::span<LayoutTensor> tensors) {
    std::vector<FileTensor> listed;
    for (const LayoutTensor& tensor : tensors) {
      listed.push_back({tensor.name, FileType::f32, tensor.shape, 0, 0});
    }
    // Hugging Face's loader refuses files without this entry.
    const FileHeader header = lay_out(std::move(listed), {{"format", "pt"}});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].file = files_.size();
      tensors[i].offset = header.data_begin + header.tensors[i].begin;
    }
    files_.push_back({name, header.data_begin + header.tensors.back().end, header_bytes(header)});
  }

  const CheckpointLayoutOptions& options_;
  std::vector<LayoutFile> files_;
};

/// The text of Hugging Face's model.safetensors.index.json.
std::string weight_index_text(std::span<const LayoutTensor> parameters,
                              const std::map<std::string, std::string>& file_of_tensor) {
  std::int64_t bytes = 0;
  for (const LayoutTensor& tensor : parameters) bytes += tensor.count() * kElementBytes;
  const nlohmann::json text = {{"metadata", {{"total_size", bytes}}},
                               {"weight_map", file_of_tensor}};
  return text.dump(2) + "\n";
}

/// The range of `tensors`, sorted by kind, that has this kind.
std::span<LayoutTensor> of_kind(std::span<LayoutTensor> tensors, StateKind kind) {
  const auto [begin, end] = std::ranges::equal_range(tensors, kind, {}, &LayoutTensor::kind);
  return {begin, end};
}

}  // namespace

CheckpointLayout::CheckpointLayout(std::vector<LayoutFile> files, std::vector<LayoutTensor> tensors)
    : files_(std::move(files)), tensors_(std::move(tensors)), blocks_(sizes_of(files_)) {
  std::pair<std::size_t, std::int64_t> end{0, 0};
  for (const LayoutTensor& tensor : tensors_) {
    const std::pair<std::size_t, std::int64_t> begin{tensor.file, tensor.offset};
    // Blocks are cut at multiples of an element too: no element lies in two of them.
    ZERO_CHECK(begin >= end && tensor.offset % kElementBytes == 0,
               "tensor \"{}\" is laid out at offset {} of {}, behind offset {}", tensor.name,
               tensor.offset, files_.at(tensor.file).name, end.second);
    end = {tensor.file, tensor.end()};
    ZERO_CHECK(end.second <= files_.at(tensor.file).bytes,
               "tensor \"{}\" is laid out to offset {} of {}, which has {} bytes", tensor.name,
               end.second, files_[tensor.file].name, files_[tensor.file].bytes);
  }
}

std::int64_t CheckpointLayout::bytes() const {
  std::int64_t bytes = 0;
  for (const LayoutFile& file : files_) bytes += file.bytes;
  return bytes;
}

std::string_view CheckpointLayout::head_of(const Block& block) const {
  const std::string_view head = files_.at(block.file).head;
  const auto begin = std::min(static_cast<std::size_t>(block.begin), head.size());
  return head.substr(begin, static_cast<std::size_t>(block.bytes));
}

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

CheckpointLayout lay_out_checkpoint(std::span<const LogicalTensor> tensors, const NameMap& names,
                                    const CheckpointLayoutOptions& options) {
  std::vector<LayoutTensor> listed = file_tensors(tensors, names);
  Writer writer(options);
  const std::span<LayoutTensor> parameters = of_kind(listed, StateKind::parameter);
  const auto file_of_tensor = writer.add_tensors("weights/model", parameters);
  if (!file_of_tensor.empty()) {
    writer.add_small(kWeightIndex, weight_index_text(parameters, file_of_tensor));
  }
  for (const auto& [name, content] : options.weight_files) {
    check_small_name(name);
    writer.add_small(name, content);
  }
  for (const StateKind kind : {StateKind::moment0, StateKind::moment1}) {
    writer.add_tensors(fmt::format("moments/{}", name_of(kind)), of_kind(listed, kind));
  }
  return {writer.take_files(), std::move(listed)};
}

CheckpointLayout match_checkpoint(const CheckpointIndex& index, const std::string& folder,
                                  std::span<const LogicalTensor> tensors, const NameMap& names) {
  const std::vector<LayoutTensor> wanted = file_tensors(tensors, names);
  std::vector<LayoutTensor> found;
  std::vector<bool> taken(wanted.size());
  for (const CheckpointIndex::Tensor& tensor : index.tensors) {
    const auto at = std::lower_bound(wanted.begin(), wanted.end(), tensor,
                                     [](const LayoutTensor& a, const CheckpointIndex::Tensor& b) {
                                       return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
                                     });
    const std::string& file = index.files.at(tensor.file).name;
    ZERO_CHECK(at != wanted.end() && at->kind == tensor.kind && at->name == tensor.name,
               "{}/{}: tensor \"{}\" ({}): found shape {}, expected no tensor of that name and "
               "kind among the model's {}; was the checkpoint saved by another model or optimizer?",
               folder, printable_line(file), printable_line(tensor.name), name_of(tensor.kind),
               shape_text(tensor.shape), wanted.size());
    ZERO_CHECK(at->shape == tensor.shape, "{}/{}: tensor \"{}\" ({}): found shape {}, expected {}",
               folder, printable_line(file), printable_line(tensor.name), name_of(tensor.kind),
               shape_text(tensor.shape), shape_text(at->shape));
    found.push_back(*at);
    found.back().file = tensor.file;
    found.back().offset = tensor.offset;
    taken[static_cast<std::size_t>(at - wanted.begin())] = true;
  }
  const auto missing = std::find(taken.begin(), taken.end(), false);
  if (missing != taken.end()) {
    const LayoutTensor& tensor = wanted[static_cast<std::size_t>(missing - taken.begin())];
    fail(
        "{}: tensor \"{}\" ({}): found none of that name and kind among {}, expected shape {}; "
        "was the checkpoint saved by another model or optimizer?",
        folder, tensor.name, name_of(tensor.kind), index.tensors.size(), shape_text(tensor.shape));
  }
  std::vector<LayoutFile> files;
  for (const CheckpointIndex::File& file : index.files)
    files.push_back({file.name, file.bytes, {}});
  return {std::move(files), std::move(found)};
}

CheckpointIndex index_of(const CheckpointLayout& layout, std::int64_t step,
                         std::span<const std::uint32_t> crcs, const nlohmann::ordered_json& extra) {
  const FileBlocks& blocks = layout.blocks();
  ZERO_CHECK(std::ssize(crcs) == blocks.count(), "{} checksums are given for {} blocks",
             crcs.size(), blocks.count());
  CheckpointIndex index{.step = step, .extra = extra};
  index.tensors.assign(layout.tensors().begin(), layout.tensors().end());
  for (std::size_t i = 0; i < layout.files().size(); ++i) {
    const LayoutFile& file = layout.files()[i];
    const auto own = crcs.subspan(static_cast<std::size_t>(blocks.first(i)),
                                  static_cast<std::size_t>(blocks_of(file.bytes)));
    index.files.push_back({file.name, file.bytes, {own.begin(), own.end()}});
  }
  return index;
}

}  // namespace zero
