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
