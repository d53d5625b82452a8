// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

struct TrainConfig;

// The checks throw zero::Error naming key, path and reason. Asked by every rank.

/// Unless the log and the folder of checkpoints can be written, beside which a run writes from its
/// start on.
void check_places(const TrainConfig& config);
/// Unless the other files that a run will read and write can be: the last step is too late for a
/// mistyped name.
void check_files(const TrainConfig& config);

/// Makes run.checkpoint.folder and missing folders above it, for all ranks, before any other rank
/// looks for its name: a file system of a network remembers for a minute that a name was missing.
void make_checkpoint_folder(const TrainConfig& config);

}  // namespace zero
