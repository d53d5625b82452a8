// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/nccl/options.h"

namespace zero::nccl {

/// A rank's description of itself to the others before NCCL starts.
struct Identity {
  std::string version;   ///< of NCCL
  std::string gpu;       ///< its name
  std::string gpu_id;    ///< unique in the world
  std::string host;      ///< its name
  std::string settings;  ///< settings that must be equal on all ranks: "exact sums"

  /// One line a field, in this order.
  std::string text() const;
  static Identity from(const std::string& text);
};

/// Throws zero::Error, the same on every rank, if versions, GPUs or settings differ, or if two
/// ranks have one GPU and `gpus` is not Gpus::shared.
void check_identities(int rank, const std::vector<Identity>& ranks, Gpus gpus);

/// Whether some ranks share a GPU.
bool share_gpus(const std::vector<Identity>& ranks);

}  // namespace zero::nccl
