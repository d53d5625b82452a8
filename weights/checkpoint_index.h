// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "partition/logical_tensor.h"

namespace zero {

/// The version of the format of checkpoints: their folders, index.json and COMMIT.
inline constexpr int kCheckpointFormat = 1;

/// Bytes of an index.json that readers accept.
inline constexpr std::int64_t kLargestIndex = std::int64_t{1} << 30;

/// Bytes of an element of a tensor, which is fp32.
inline constexpr std::int64_t kElementBytes = sizeof(float);

/// The kinds of states that checkpoints hold; index.json has their name_of().
inline constexpr std::array kStateKinds = {StateKind::parameter, StateKind::moment0,
                                           StateKind::moment1};

/// The content of a checkpoint's index.json: its tensors, its files with their checksums, and the
/// trainer's own values. A function of names, shapes and values alone: nothing of meshes, threads,
/// hosts or time.
struct CheckpointIndex {
  /// An fp32 tensor of a safetensors file.
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    StateKind kind = StateKind::parameter;
    std::size_t file = 0;     ///< index in `files`
    std::int64_t offset = 0;  ///< of its first byte in the file

    std::int64_t count() const;                                            ///< elements
    std::int64_t end() const { return offset + count() * kElementBytes; }  ///< in the file
  };
  /// A file of the folder; all are listed but index.json and COMMIT.
  struct File {
    std::string name;  ///< in the folder: "weights/config.json"
    std::int64_t bytes = 0;
    std::vector<std::uint32_t> crcs;  ///< CRC32C of each block (file_blocks.h)
  };

  std::int64_t step = 0;
  std::int64_t steps_skipped = 0;  ///< of `step`, those whose update was not made
  std::vector<Tensor> tensors{};   ///< in the order of files and offsets
  std::vector<File> files{};
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  ///< the trainer's values

  std::int64_t bytes() const;  ///< of all files
};

/// The first of `tensors`, in the order of files and offsets, that ends behind byte `offset` of
/// file `file`.
template <typename Tensor>
typename std::vector<Tensor>::const_iterator first_behind(const std::vector<Tensor>& tensors,
                                                          std::size_t file, std::int64_t offset) {
  return std::partition_point(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
    return std::pair(tensor.file, tensor.end()) <= std::pair(file, offset);
  });
}

/// The text of index.json. Deterministic. Throws zero::Error if parse_checkpoint_index would refuse
/// it, for one because of what `extra` holds.
std::string checkpoint_index_text(const CheckpointIndex& index);

/// Reads such a text; `path` names the file in messages. Strict: throws zero::Error naming file and
/// field, found and expected, if a field is missing, unknown or of another type, a number is out of
/// range, the format version is another, a file name leaves the folders `weights` and `moments`,
/// tensors overlap or lie outside their file, or if the text differs in any byte from what
/// checkpoint_index_text writes for these values.
CheckpointIndex parse_checkpoint_index(const std::string& path, std::string_view text);

/// The content of COMMIT for an index.json of this text: one line with the format version and the
/// XXH3-128 of the text.
std::string commit_line(std::string_view index_text);

/// Throws zero::Error naming file, found and expected unless `commit`, the content of the file
/// `path`, is commit_line(index_text); another format version is refused by its number.
void check_commit(const std::string& path, std::string_view commit, std::string_view index_text);

}  // namespace zero
