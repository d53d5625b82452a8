// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "checkpoint/name_map.h"
#include "checkpoint/safetensors.h"
#include "device/host_pieces.h"
#include "engine/engine.h"

namespace zero {

// One rank's side of moving logical tensors between memory and files, without communication.
// Tensors are the engine's lists (Engine::state): every rank has all names and shapes, and its own
// parts.

/// `tensors` as files hold them: pieces replace each tensor that `names` splits, and the parts of
/// the pieces are views into the parts of the whole. Throws zero::Error if the pieces and the
/// tensor differ in the number of rows.
std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names);

/// A tensor of a file.
struct FileSource {
  const SafetensorsReader* file = nullptr;
  const FileTensor* tensor = nullptr;
};

/// The file and tensor that each logical tensor matches, in the order of `tensors`.
struct FileMatch {
  std::vector<FileSource> sources;
  struct Alias {
    FileSource source;
    std::size_t tensor;  ///< index of the tensor that the alias must equal
  };
  std::vector<Alias> aliases;
};

/// Searches `files`, which must outlive the match, as if they were one file. Throws zero::Error
/// naming file, tensor, found and expected if a tensor is missing, repeated, has another shape or a
/// type other than F32, BF16 and F16, or if a file holds a tensor that neither `tensors` nor
/// `names` knows.
FileMatch match_files(std::span<const SafetensorsReader> files,
                      std::span<const LogicalTensor> tensors, const NameMap& names);

/// Throws zero::Error if an alias and its tensor differ in value within this rank's parts.
void check_aliases(std::span<const LogicalTensor> tensors, const FileMatch& match);

/// Fills the parts of `tensors` through `pieces`, converting to the dtype of each view; reads no
/// other elements.
void read_parts(std::span<const LogicalTensor> tensors, const FileMatch& match, HostPieces& pieces);

/// The layout of a file that holds `tensors` whole, as fp32: the same for equal names and shapes.
FileHeader layout_of(std::span<const LogicalTensor> tensors);

/// Writes the primary parts of `tensors` as fp32, through `pieces`, into a file with the layout
/// layout_of(tensors).
void write_parts(const SafetensorsWriter& file, std::span<const LogicalTensor> tensors,
                 HostPieces& pieces);

}  // namespace zero
