// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/file_system.h"

namespace zero {

struct GenerateFlags;

/// Writes the model's folder once more as flags.save_quantized, with its matrices in codes of
/// flags.weights: config.json, tokenizer and weights. The folder has its name once it is whole and
/// on the disk. Prints its size; returns the exit status. Throws zero::Error; nothing is then left,
/// unless the last step failed, which syncs the name of the whole folder.
int save_quantized(const GenerateFlags& flags, files::FileSystem& disk);

}  // namespace zero
