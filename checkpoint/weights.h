// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/name_map.h"
#include "engine/engine.h"

namespace zero {

/// Fills the parameters of a sealed engine from a safetensors file (F32, BF16 or F16), or from
/// those of a Hugging Face folder, at any stage and world: each rank reads the bytes of the
/// elements it owns. Optimizer states stay as they are. Throws the same zero::Error on all ranks,
/// naming file and tensor, when the file lies, lacks a parameter, holds another shape or an unknown
/// tensor; the engine's parameters are then as before, unless reading itself failed.
/// Collective; between optimizer steps.
void load_weights(Engine& engine, const std::string& path, const NameMap& names = names::gpt2());

/// Writes the parameters of a sealed engine (master values, as fp32) under the names of files to a
/// safetensors file that takes the place of `path` once it is whole. Equal values give equal bytes,
/// whatever stage and world. Throws the same zero::Error on all ranks when any rank fails; the old
/// file is then untouched. Collective; between optimizer steps.
void save_weights(Engine& engine, const std::string& path, const NameMap& names = names::gpt2());

}  // namespace zero
