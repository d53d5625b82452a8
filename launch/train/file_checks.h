// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/config/train_config.h"

namespace zero {

/// Throws zero::Error naming key, path and reason unless the files that a run will read and write
/// can be: the last step is too late for a mistyped name. Asked by every rank.
void check_files(const TrainConfig& config);

/// Makes run.checkpoint.folder and missing folders above it, for all ranks, before any other rank
/// looks for its name: a file system of a network remembers for a minute that a name was missing.
void make_checkpoint_folder(const TrainConfig::Checkpoints& checkpoints);

}  // namespace zero
