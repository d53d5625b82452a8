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
/// those of a Hugging Face folder, at any stage and world: each rank reads only the elements that
/// it owns. Optimizer states do not change. Throws the same zero::Error on all ranks, naming file
/// and tensor, if a file is malformed, lacks a parameter, has another shape or an unknown tensor;
/// the parameters are then unchanged, unless reading itself failed. Collective; between optimizer
/// steps.
void load_weights(Engine& engine, const std::string& path, const NameMap& names = names::gpt2());

/// Writes the parameters of a sealed engine (master values, as fp32), under the names that files
/// use, to a safetensors file that replaces `path` only when whole. Equal values give equal bytes
/// at any stage and world. Throws the same zero::Error on all ranks if any rank fails; the old file
/// is then untouched. Collective; between optimizer steps.
void save_weights(Engine& engine, const std::string& path, const NameMap& names = names::gpt2());

/// The ranks that move one set of logical tensors together, and the device of their agreements.
struct Ranks {
  Communicator& communicator;
  Device& device;
  HostPieces& pieces;  ///< the staging path to the tensors' parts
};

/// Like agree(), but the error always names the first failing rank, with `purpose`.
void together(const Ranks& ranks, std::string_view purpose, const std::function<void()>& work);

/// Fills the parts of `tensors` from the safetensors file at `path`, or from those of the Hugging
/// Face folder there: each rank reads only the bytes of its own elements. If the files do not fit
/// `tensors`, nothing changes. Collective.
void load_tensors(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                  const std::string& path, const NameMap& names);

/// Writes `tensors`, whose primary parts cover each element once over all ranks, to `path` as fp32.
/// Each rank writes its own elements into `path`.partial, which replaces `path` once all ranks have
/// succeeded; a failure leaves `path` unchanged. Every rank must see the directory. The bytes
/// depend only on names, shapes and values. Collective.
void save_tensors(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                  const std::string& path);

}  // namespace zero
