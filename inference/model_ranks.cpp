// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/model_ranks.h"

#include "collectives/agreement.h"

namespace zero {

void agree(const ModelRanks& ranks, Device& device, std::string_view purpose,
           const std::function<void()>& work) {
  if (ranks.all.communicator != nullptr && device.has_memory()) {
    return agree(*ranks.all.communicator, device, purpose, work);
  }
  const std::string why = failure_of(work);
  if (!why.empty()) throw AgreedError(why);
}

}  // namespace zero
