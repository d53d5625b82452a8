// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "checkpoint/name_map.h"
#include "checkpoint/safetensors.h"
#include "engine/engine.h"

namespace zero {

// One rank's side of moving logical tensors between memory and files: no communication. Tensors are
// the engine's lists (Engine::state): every rank has all names and shapes, and its own parts.

/// Which tensor of a file each logical tensor is, in the order of `tensors`. Throws zero::Error
/// naming file, tensor, found and expected when one is missing, has another shape or no floating
/// dtype that parts can be read from (F32, BF16, F16), or when the file holds one that neither
/// `tensors` nor `names` knows.
struct FileMatch {
  std::vector<const FileTensor*> sources;
  struct Alias {
    const FileTensor* source;
    std::size_t tensor;  ///< index of what it must equal
  };
  std::vector<Alias> aliases;
};
FileMatch match_file(const SafetensorsReader& file, std::span<const LogicalTensor> tensors,
                     const NameMap& names);

/// Throws zero::Error where an alias in `file` has other values than its tensor, among the elements
/// of this rank's parts.
void check_aliases(const SafetensorsReader& file, std::span<const LogicalTensor> tensors,
                   const FileMatch& match);

/// Fills the parts of `tensors` from `file`, converting to the dtype of each view; reads no other
/// elements.
void read_parts(const SafetensorsReader& file, std::span<const LogicalTensor> tensors,
                const FileMatch& match);

/// The layout of a file that holds `tensors` whole, as fp32: the same for equal names and shapes.
FileHeader layout_of(std::span<const LogicalTensor> tensors);

/// Writes the parts of `tensors` into a file of layout_of(tensors), as fp32.
void write_parts(const SafetensorsWriter& file, std::span<const LogicalTensor> tensors);

}  // namespace zero
