// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/file_system.h"
#include "weights/hf/safetensors.h"
#include "weights/text_file.h"

namespace zero {

/// Opens the files of folders of models. In the folder `weights` of a checkpoint, as a path or a
/// link on its way names it, they must be as they were saved: every block of which a byte is read
/// is first held against its checksum in the checkpoint's index. Used by one thread; the files may
/// be read by several, and outlive it.
class ModelFiles {
 public:
  /// Throws zero::Error naming the file if it is no regular file, cannot be opened, is in a
  /// checkpoint that is damaged or whose index does not list it, is a Git LFS pointer, or holds
  /// weights in a format that is not read. A read of damaged data names file, offset and tensor.
  std::unique_ptr<files::InputFile> open(const std::string& path);

 private:
  struct Source;
  std::map<std::string, std::shared_ptr<Source>> sources_;  // by folder of a checkpoint
};

/// The beginning of a Git LFS pointer, which a clone without Git LFS has in place of a large file.
inline constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/";
/// Throws zero::Error naming the file and what to do if its first bytes, `start`, are a pointer's.
void check_no_pointer(const std::string& path, std::string_view start);

/// The content of a small file of a model's folder, opened likewise. Throws zero::Error naming the
/// file, also if it has more than `largest` bytes.
std::string read_model_text(const std::string& path, std::int64_t largest = kLargestText);

/// The safetensors files that hold the weights at `path`: the file itself or, of a folder, its
/// model.safetensors or the files that its model.safetensors.index.json lists. Throws zero::Error
/// naming the missing file.
std::vector<std::string> weight_files(const std::string& path);

/// Opens the safetensors files of the weights at `path`, as weight_files() finds them and
/// ModelFiles opens files. Throws zero::Error naming the file; a read of damaged data of a
/// checkpoint names file, offset and tensor.
std::vector<SafetensorsReader> open_weights(const std::string& path);

}  // namespace zero
