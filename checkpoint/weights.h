// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/name_map.h"
#include "device/host_pieces.h"
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

/// The ranks that move one set of logical tensors together, and where their agreements run.
struct Ranks {
  Communicator& communicator;
  Device& device;
  HostPieces& pieces;  ///< the way to the tensors' parts
};

/// As agree(); the first failing rank is always named, with `purpose`.
void together(const Ranks& ranks, std::string_view purpose, const std::function<void()>& work);

/// Fills the parts of `tensors` from the safetensors file at `path`, or from those of the Hugging
/// Face folder there: each rank reads the bytes of its own elements alone. Nothing has changed when
/// the files do not fit `tensors`. Collective.
void load_tensors(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                  const std::string& path, const NameMap& names);

/// Writes `tensors`, whose primary parts cover each element once over all ranks, to `path` as fp32:
/// each rank its own elements, into `path`.partial, which takes the place of `path` when all ranks
/// have succeeded; a failure leaves `path` as it was. Every rank must see the directory. The file
/// depends on names, shapes and values alone. Collective.
void save_tensors(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                  const std::string& path);

}  // namespace zero
