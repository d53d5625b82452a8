// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "engine/engine.h"
#include "files/file_system.h"
#include "weights/checkpoint_layout.h"

namespace zero::testing {

/// The owner of what save_checkpoint writes.
inline const std::string kOwner = "a run";

/// The engine's lists of parameters and of both moments, for parameters of these names and shapes.
struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};
std::vector<LogicalTensor> logical_tensors(const std::vector<NamedShape>& parameters);

/// A layout of some ten files of a few hundred bytes each.
CheckpointLayout small_layout();
/// A layout of a few MiB: blocks with the ends of several tensors, and tensors of several blocks.
CheckpointLayout large_layout();

/// Element `element` of a state in the content that `seed` chooses. Never 0.
float value_of(std::uint32_t seed, const LayoutTensor& tensor, std::int64_t element);
/// The bytes of a block in that content.
std::vector<std::byte> block_bytes(const CheckpointLayout& layout, const Block& block,
                                   std::uint32_t seed);

/// Saves a checkpoint as one rank would.
RemovalNotes save_checkpoint(files::FileSystem& files, const std::string& folder, std::int64_t step,
                             const CheckpointLayout& layout, std::uint32_t seed);
/// All of it but the commit, syncing nothing; returns the index to commit with.
CheckpointIndex write_checkpoint(files::FileSystem& files, const std::string& folder,
                                 std::int64_t step, const CheckpointLayout& layout,
                                 std::uint32_t seed);

}  // namespace zero::testing
