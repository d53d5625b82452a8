// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/nccl/options.h"

namespace zero::nccl {

/// What a rank tells the others before NCCL starts.
struct Identity {
  std::string version;   ///< of NCCL
  std::string gpu;       ///< its name
  std::string gpu_id;    ///< of this one in the world
  std::string host;      ///< its name
  std::string settings;  ///< what must be the same: "exact sums"

  /// One line a field, in this order.
  std::string text() const;
  static Identity from(const std::string& text);
};

/// Throws zero::Error, the same on every rank, where versions, GPUs or settings differ, or where
/// two ranks have one GPU and `gpus` is not shared.
void check_identities(int rank, const std::vector<Identity>& ranks, Gpus gpus);

/// Whether some ranks have one GPU.
bool share_gpus(const std::vector<Identity>& ranks);

}  // namespace zero::nccl
