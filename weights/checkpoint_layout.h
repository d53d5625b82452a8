// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/name_map.h"
#include "partition/logical_tensor.h"
#include "weights/checkpoint_index.h"
#include "weights/file_blocks.h"

namespace zero {

/// A tensor of a checkpoint's files: all of a logical tensor, or some of its rows where files hold
/// a fused tensor as several.
struct LayoutTensor : CheckpointIndex::Tensor {
  std::size_t source = 0;         ///< the logical tensor: index in the engine's list of that kind
  std::int64_t source_begin = 0;  ///< the tensor's first element, in the logical tensor
};

/// A file of a checkpoint.
struct LayoutFile {
  std::string name;  ///< in the checkpoint's folder: "weights/model-00001-of-00002.safetensors"
  std::int64_t bytes = 0;
  /// The file's first bytes: the header of a safetensors file, all of any other file. In a layout
  /// made for reading (match_checkpoint) empty.
  std::string head;
};

/// Elements of one tensor that lie in one block.
struct BlockPiece {
  std::size_t tensor = 0;         ///< index in tensors()
  std::int64_t source_begin = 0;  ///< first element, in the logical tensor
  std::int64_t count = 0;         ///< elements, at least 1
  std::int64_t offset = 0;        ///< of the first byte in the block
};

/// Which bytes of which files of a checkpoint hold which elements of the model states: all files
/// but index.json and COMMIT. Plain data, equal on all ranks.
class CheckpointLayout {
 public:
  /// `tensors`, in the order of their files and offsets, lie in `files` at multiples of 4 bytes.
  CheckpointLayout(std::vector<LayoutFile> files, std::vector<LayoutTensor> tensors);

  const std::vector<LayoutFile>& files() const { return files_; }
  /// In the order of files and offsets.
  const std::vector<LayoutTensor>& tensors() const { return tensors_; }
  const FileBlocks& blocks() const { return blocks_; }
  /// Bytes of all files together.
  std::int64_t bytes() const;

  /// The bytes of the file's head that lie in `block`, from the block's first byte on; empty behind
  /// the head. Pieces cover all other bytes of a block.
  std::string_view head_of(const Block& block) const;
  /// Calls visit(const BlockPiece&) for the elements in `block`, in the order of their bytes.
  template <typename Visit>
  void for_each_piece(const Block& block, const Visit& visit) const;

 private:
  std::vector<LayoutFile> files_;
  std::vector<LayoutTensor> tensors_;
  FileBlocks blocks_;
};

struct CheckpointLayoutOptions {
  /// Bytes of tensors in one file. Tensors, sorted by name, fill a file until the next would not
  /// fit; a larger tensor has a file of its own.
  std::int64_t file_bytes = std::int64_t{4} << 30;
  /// Small files of the folder `weights` by name, with their content: config.json, a tokenizer.
  std::map<std::string, std::string> weight_files{};
};

/// `tensors` as files hold them: pieces, which follow each other in the elements of the whole,
/// replace each tensor that `names` splits. Throws zero::Error if the pieces and the tensor differ
/// in the number of rows.
std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names);

/// Lays out the files of a checkpoint. `tensors` are the engine's lists (EngineStates::tensors) of
/// parameters and of the moments that the optimizer has, in one list; names, shapes and kinds alone
/// are read. Files: weights/model.safetensors, or weights/model-00001-of-0000N.safetensors and so
/// on with weights/model.safetensors.index.json, as Hugging Face's; `weight_files`;
/// moments/moment0.safetensors or moments/moment0-00001-of-0000N.safetensors; moment1 likewise.
/// Deterministic in its arguments. Throws zero::Error on names that repeat, a small file whose name
/// is no plain name or is that of tensor files, or pieces of `names` that do not fit a tensor.
CheckpointLayout lay_out_checkpoint(std::span<const LogicalTensor> tensors, const NameMap& names,
                                    const CheckpointLayoutOptions& options);

/// Finds the logical tensors `tensors`, as for lay_out_checkpoint, in the files of an existing
/// checkpoint `folder`, whose files may be cut at any size. Throws zero::Error naming file, tensor,
/// found and expected if a tensor is missing, has another shape, or is unknown to the model.
CheckpointLayout match_checkpoint(const CheckpointIndex& index, const std::string& folder,
                                  std::span<const LogicalTensor> tensors, const NameMap& names);

/// The index of a checkpoint whose blocks have the checksums `crcs`, one for each of
/// layout.blocks().
CheckpointIndex index_of(const CheckpointLayout& layout, std::int64_t step,
                         std::span<const std::uint32_t> crcs, const nlohmann::ordered_json& extra);

template <typename Visit>
void CheckpointLayout::for_each_piece(const Block& block, const Visit& visit) const {
  const std::int64_t block_end = block.begin + block.bytes;
  for (auto at = first_behind(tensors_, block.file, block.begin); at != tensors_.end(); ++at) {
    if (at->file != block.file || at->offset >= block_end) break;
    const std::int64_t begin = std::max(block.begin, at->offset);
    const std::int64_t end = std::min(block_end, at->end());
    if (begin >= end) continue;
    visit(BlockPiece{.tensor = static_cast<std::size_t>(at - tensors_.begin()),
                     .source_begin = at->source_begin + (begin - at->offset) / kElementBytes,
                     .count = (end - begin) / kElementBytes,
                     .offset = begin - block.begin});
  }
}

}  // namespace zero
