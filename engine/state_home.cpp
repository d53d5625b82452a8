// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_home.h"

#include <algorithm>
#include <cstddef>

namespace zero {

StateHome::StateHome(Device& device, const TierOptions& options)
    : device_(device),
      on_gpu_(device.memory() == MemorySpace::device),
      states_(options.optimizer),
      shards_(options.parameters) {
  if (uses_file(options)) file_.emplace(device, options.file);
  if (uses_host(options) && on_gpu_) host_.emplace(device);
}

View StateHome::reserve(std::int64_t count, DType dtype, MemoryClass memory_class,
                        std::string_view label) {
  has_narrow_ = has_narrow_ || dtype != DType::fp32;
  const Tier tier = memory_class == MemoryClass::parameters ? shards_ : states_;
  return tier == Tier::file ? file_->reserve(count, dtype, memory_class, label)
                            : host_->reserve(count, dtype, memory_class, label);
}

void StateHome::open(std::int64_t ring, std::int64_t slots) {
  const bool filed = file_ && file_->bytes() > 0;
  if (!filed && !(host_ && host_->bytes() > 0)) return;
  ring_ = ring;
  slots_ = slots;
  if (on_gpu_) {
    device_tile_ = has_narrow_ ? kDeviceTile : 0;
    device_memory_ = device_.allocate(ring_ + slots_ + device_tile_, DType::u8,
                                      MemoryClass::staging, "windows of states");
  }
  if (!filed) return;
  tile_ = std::min(kTileRequests * file_->options().block_bytes, file_->bytes());
  tiles_begin_ = ring_ + (shards_ == Tier::file ? slots_ : 0);
  host_memory_ = WindowMemory(device_, tiles_begin_ + 2 * tile_,
                              on_gpu_ ? "windows of a file" : "windows of states");
  file_->open(host_memory_.view());
}

/// The bytes of a GPU's window in host memory, as a view like it.
View StateHome::twin(const View& window) const {
  const std::int64_t at = static_cast<const std::byte*>(window.data()) -
                          static_cast<const std::byte*>(device_memory_.view().data());
  return host_memory_.view().slice(at, window.bytes()).reinterpret(window.dtype(), window.count());
}

StateHome::Ticket StateHome::start_read(const View& from, const View& to) {
  if (in_host(from)) {
    host_->read(from, to);
    return 0;
  }
  if (!has_twins()) return file_->start_read(from, to);
  const View host = twin(to);
  const Ticket ticket = file_->start_read(from, host);
  arriving_.emplace(ticket, Twins{host, to});
  return ticket;
}

StateHome::Ticket StateHome::start_write(const View& from, const View& to) {
  if (in_host(to)) {
    host_->write(from, to);
    return 0;
  }
  if (!has_twins()) return file_->start_write(from, to);
  const View host = twin(from);
  device_.kernels().convert(device_.transfer(), from, host);
  return file_->start_write(host, to);
}

void StateHome::finish(Ticket ticket) {
  if (ticket == 0) return;  // a copy
  file_->finish(ticket);
  const auto arrived = arriving_.find(ticket);
  if (arrived == arriving_.end()) return;
  device_.kernels().convert(device_.transfer(), arrived->second.host, arrived->second.window);
  arriving_.erase(arrived);
}

std::string StateHome::failure() const {
  const std::string why = file_ ? file_->failure() : std::string();
  if (why.empty()) return why;
  // Names no rank: where all fail alike, the message that they agree on names none either.
  return why + "; values in it are lost";
}

}  // namespace zero
