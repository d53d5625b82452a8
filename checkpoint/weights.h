// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "architecture/decoder_shape.h"
#include "architecture/name_map.h"
#include "engine/engine.h"
#include "files/file_system.h"

namespace zero {

/// Fills the parameters of a sealed engine from a safetensors file (F32, BF16 or F16), or from
/// those of a Hugging Face folder, at any stage and world: each rank reads only the elements that
/// it owns. Optimizer states do not change. Throws the same zero::Error on all ranks, naming file
/// and tensor, if a file is malformed, lacks a parameter, has another shape or an unknown tensor,
/// or if what is read of a checkpoint's weights is not as it was saved; the parameters are then
/// unchanged, unless reading itself failed or found damage. Collective; between optimizer steps.
void load_weights(Engine& engine, const std::string& path, const NameMap& names);

/// Writes the parameters of a sealed engine (master values, as fp32), under the names that files
/// use, to a safetensors file that replaces `path` only when whole. Every rank must see the folder.
/// Equal values give equal bytes at any stage and world. Throws the same zero::Error on all ranks
/// if any rank fails; the old file is then untouched. Collective; between optimizer steps.
void save_weights(Engine& engine, const std::string& path, const NameMap& names,
                  files::FileSystem& disk = files::disk());

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

/// Like agree() over all ranks of the engine, but the error always names the first failing rank,
/// with `purpose`.
void together(Engine& engine, std::string_view purpose, const std::function<void()>& work);

}  // namespace zero
