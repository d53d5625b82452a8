// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_file.h"

#include <algorithm>

namespace zero {

StateFile::StateFile(Device& device, const TierOptions& options) : device_(device) {
  if (uses_file(options)) file_.emplace(device, options.file);
}

void StateFile::open(std::int64_t ring, std::int64_t slots) {
  if (!file_ || file_->bytes() == 0) return;
  ring_ = ring;
  slots_ = slots;
  tile_ = std::min(kTileRequests * file_->options().block_bytes, file_->bytes());
  memory_ = WindowMemory(device_, ring_ + slots_ + 2 * tile_, "windows of states");
  file_->open(memory_.view());
}

std::string StateFile::failure() const {
  const std::string why = file_ ? file_->failure() : std::string();
  if (why.empty()) return why;
  // Names no rank: where all fail alike, the message that they agree on names none either.
  return why + "; values in it are lost: start again from the newest checkpoint";
}

}  // namespace zero
