// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "architecture/decoder_shape.h"
#include "engine/engine.h"

namespace zero {

/// Whether `path` means a folder: it ends with a slash.
bool names_folder(const std::string& path);

/// Throws zero::Error with the reason if save_hf_folder could not write `folder`.
void check_folder_target(const std::string& folder);

/// Writes model.safetensors (master values, as fp32, under Hugging Face's names), config.json and
/// `beside`, small files by name and content, into `folder`, creating the folder if needed. A
/// config.json of `beside`, which must be that of `shape`, is written in place of one that has the
/// fields of the model alone. Each file replaces an older one only when whole. Throws the same
/// zero::Error on all ranks. Collective; between optimizer steps.
void save_hf_folder(Engine& engine, const std::string& folder, const DecoderShape& shape,
                    const std::map<std::string, std::string>& beside = {});

}  // namespace zero
