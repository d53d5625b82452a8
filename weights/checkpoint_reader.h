// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/file_system.h"
#include "weights/checkpoint_index.h"
#include "weights/damaged_checkpoint.h"
#include "weights/file_blocks.h"

namespace zero {

/// An open checkpoint. Construction reads COMMIT, index.json and the headers of the safetensors
/// files, never the data; its memory is that of the index, and a block. Used by one thread.
class CheckpointReader {
 public:
  /// Throws DamagedCheckpoint naming file and, for headers, tensor and offset unless `folder` is a
  /// committed checkpoint: COMMIT fits index.json, the index is well formed and of the step that
  /// the folder's name tells, every file has its size, and the tensors in the headers of the
  /// safetensors files are those of the index. Folders of other names, copies for example, may hold
  /// any step. Throws another zero::Error if a file cannot be read. Of the files only those are
  /// looked at whose names begin with `start`.
  CheckpointReader(files::FileSystem& files, std::string folder, std::string_view start = "");

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }
  /// The blocks of index().files.
  const FileBlocks& blocks() const { return blocks_; }

  /// Opens file `file` of index().files, for reads that go through a queue.
  std::unique_ptr<files::InputFile> open(std::size_t file) const;
  /// Throws DamagedCheckpoint naming file, offset and tensors unless `bytes`, which were read as
  /// block `number`, have the checksum of the index.
  void check_block(std::int64_t number, std::span<const std::byte> bytes) const;
  /// Fills `out`, as long as block `number`, and verifies the bytes.
  void read_block(std::int64_t number, std::span<std::byte> out);

  /// The tensor of that name and kind, or null.
  const CheckpointIndex::Tensor* find(std::string_view name, StateKind kind) const;
  /// Fills `out` with elements of `tensor`, one of index().tensors, from element `first` on, and
  /// verifies every block that holds one.
  void read(const CheckpointIndex::Tensor& tensor, std::int64_t first, std::span<float> out);
  /// Fills `out` from byte `offset` of file `file` on, and verifies every block that holds one.
  void read_bytes(std::size_t file, std::int64_t offset, std::span<std::byte> out);
  /// What block `number` holds: `elements 0 to 9 of tensor "h.0.weight" and 2 more`, `the header`,
  /// or `no tensor`.
  std::string content_of(std::int64_t number) const;
  /// The first tensor with elements in block `number`; null if none has.
  const CheckpointIndex::Tensor* first_tensor(std::int64_t number) const;

 private:
  void check_file(std::size_t file) const;
  void check_header(std::size_t file, const std::string& path, files::InputFile& input) const;
  std::string path_of(std::size_t file) const;

  files::FileSystem& files_;
  std::string folder_;
  CheckpointIndex index_;
  FileBlocks blocks_;
  std::unique_ptr<files::InputFile> opened_;  // the file read last
  std::size_t opened_file_ = 0;
  std::vector<std::byte> block_;  // the block that read() read last
  std::optional<std::int64_t> block_number_;
};

/// A damage that verify_checkpoint found, or what it could not read.
struct CheckpointFault {
  std::string file{};       ///< in the folder; empty if the folder as a whole is no checkpoint
  std::string tensor{};     ///< the first that the damaged block holds; empty if none
  std::int64_t offset = 0;  ///< of the damaged block in the file
  std::string reason{};     ///< with file, tensors and offset: a message of its own
  bool damaged = false;     ///< proven; else another try may succeed
};

/// Reads all of the checkpoint `folder` and checks every byte. Empty: the checkpoint is whole.
/// Never throws because of a fault.
std::vector<CheckpointFault> verify_checkpoint(files::FileSystem& files, const std::string& folder);

}  // namespace zero
