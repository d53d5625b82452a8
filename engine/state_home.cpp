// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_home.h"

#include <algorithm>

namespace zero {

StateHome::StateHome(Device& device, const TierOptions& options) : device_(device) {
  if (uses_file(options)) {
    file_.emplace(device, options.file);
  } else if (options.optimizer == Tier::host && device.memory() == MemorySpace::device) {
    host_.emplace(device);
  }
}

View StateHome::reserve(std::int64_t count, DType dtype, MemoryClass memory_class,
                        std::string_view label) {
  if (file_) return file_->reserve(count, dtype, memory_class, label);
  has_narrow_ = has_narrow_ || dtype != DType::fp32;
  return host_->reserve(count, dtype, memory_class, label);
}

void StateHome::open(std::int64_t ring, std::int64_t slots) {
  if (host_ && host_->bytes() > 0) {
    ring_ = ring;
    tile_ = has_narrow_ ? kDeviceTile : 0;
    device_memory_ =
        device_.allocate(ring_ + tile_, DType::u8, MemoryClass::staging, "windows of states");
  }
  if (!file_ || file_->bytes() == 0) return;
  ring_ = ring;
  slots_ = slots;
  tile_ = std::min(kTileRequests * file_->options().block_bytes, file_->bytes());
  memory_ = WindowMemory(device_, ring_ + slots_ + 2 * tile_, "windows of states");
  file_->open(memory_.view());
}

StateHome::Ticket StateHome::start_read(const View& from, const View& to) {
  if (file_) return file_->start_read(from, to);
  host_->read(from, to);
  return 0;
}

StateHome::Ticket StateHome::start_write(const View& from, const View& to) {
  if (file_) return file_->start_write(from, to);
  host_->write(from, to);
  return 0;
}

void StateHome::finish(Ticket ticket) {
  if (file_) file_->finish(ticket);
}

std::string StateHome::failure() const {
  const std::string why = file_ ? file_->failure() : std::string();
  if (why.empty()) return why;
  // Names no rank: where all fail alike, the message that they agree on names none either.
  return why + "; values in it are lost: start again from the newest checkpoint";
}

}  // namespace zero
