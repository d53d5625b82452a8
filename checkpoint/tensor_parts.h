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

// One rank's side of moving logical tensors between memory and files: no communication. Tensors are
// the engine's lists (Engine::state): every rank has all names and shapes, and its own parts.

/// `tensors` as files have them: one that `names` splits is replaced by its pieces, whose parts are
/// views into the parts of the whole. Throws zero::Error if the rows of the pieces are not those
/// of the tensor.
std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names);

/// A tensor of a file.
struct FileSource {
  const SafetensorsReader* file = nullptr;
  const FileTensor* tensor = nullptr;
};

/// Which tensor of which file each logical tensor is, in the order of `tensors`.
struct FileMatch {
  std::vector<FileSource> sources;
  struct Alias {
    FileSource source;
    std::size_t tensor;  ///< index of the tensor that it must equal
  };
  std::vector<Alias> aliases;
};

/// Looks through `files`, which must outlive the match, as if they were one. Throws zero::Error
/// naming file, tensor, found and expected when a tensor is missing, is there twice, has another
/// shape or no floating dtype that parts can be read from (F32, BF16, F16), or when a file holds
/// one that neither `tensors` nor `names` knows.
FileMatch match_files(std::span<const SafetensorsReader> files,
                      std::span<const LogicalTensor> tensors, const NameMap& names);

/// Throws zero::Error if an alias has other values than its tensor, among the elements of this
/// rank's parts.
void check_aliases(std::span<const LogicalTensor> tensors, const FileMatch& match);

/// Fills the parts of `tensors`, by way of `pieces`, converting to the dtype of each view; reads no
/// other elements.
void read_parts(std::span<const LogicalTensor> tensors, const FileMatch& match, HostPieces& pieces);

/// The layout of a file that holds `tensors` whole, as fp32: the same for equal names and shapes.
FileHeader layout_of(std::span<const LogicalTensor> tensors);

/// Writes the primary parts of `tensors`, by way of `pieces`, into a file of layout_of(tensors), as
/// fp32.
void write_parts(const SafetensorsWriter& file, std::span<const LogicalTensor> tensors,
                 HostPieces& pieces);

}  // namespace zero
