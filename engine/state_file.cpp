// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_file.h"

#include <algorithm>

namespace zero {

StateFile::StateFile(Device& device, const TierOptions& options) : device_(device) {
  if (options.optimizer == Tier::file) file_.emplace(device, options.file);
}

View StateFile::reserve(std::int64_t count, DType dtype, std::string_view label) {
  return file_->reserve(count, dtype, MemoryClass::optimizer, label);
}

void StateFile::open(std::int64_t ring) {
  if (!file_ || file_->bytes() == 0) return;
  ring_ = ring;
  tile_ = std::min(kTileRequests * file_->options().block_bytes, file_->bytes());
  memory_ = WindowMemory(device_, ring_ + 2 * tile_, "windows of states");
  file_->open(memory_.view());
}

std::string StateFile::failure() const {
  const std::string why = file_ ? file_->failure() : std::string();
  if (why.empty()) return why;
  // Names no rank: where all fail alike, the message that they agree on names none either.
  return why + "; optimizer states are lost: start again from the newest checkpoint";
}

}  // namespace zero
