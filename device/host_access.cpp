// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/host_access.h"

#include <algorithm>

namespace zero {

HostAccess::HostAccess(Device& device) : device_(&device) {
  if (device.memory() == MemorySpace::host) return;
  for (Piece& piece : pieces_) {
    piece.memory = device.allocate_host(kPieceBytes, DType::u8, MemoryClass::staging,
                                        "pieces of the device's memory");
  }
}

/// The host buffer for one piece of a view.
View HostAccess::part(std::size_t piece, const View& of) const {
  return pieces_[piece].memory.view().reinterpret(of.dtype(), of.count());
}

void HostAccess::read(const View& view, const Visit& visit) {
  Stream& stream = device_->compute();
  if (device_->memory() == MemorySpace::host) {
    stream.synchronize();
    return visit(0, view);
  }
  const std::int64_t length = kPieceBytes / size_of(view.dtype());
  const auto values = [&](std::int64_t begin) {
    return view.slice(begin, std::min(length, view.count() - begin));
  };
  const auto copy = [&](std::int64_t begin) {
    const std::size_t at = static_cast<std::size_t>(begin / length) % pieces_.size();
    device_->kernels().convert(stream, values(begin), part(at, values(begin)));
    pieces_[at].copied = stream.record();
  };
  if (!view.empty()) copy(0);
  for (std::int64_t begin = 0; begin < view.count(); begin += length) {
    if (begin + length < view.count()) copy(begin + length);
    const std::size_t at = static_cast<std::size_t>(begin / length) % pieces_.size();
    pieces_[at].copied.synchronize();
    visit(begin, part(at, values(begin)));
  }
}

void HostAccess::write(const View& view, const Visit& fill) {
  Stream& stream = device_->compute();
  if (device_->memory() == MemorySpace::host) {
    stream.synchronize();
    return fill(0, view);
  }
  const std::int64_t length = kPieceBytes / size_of(view.dtype());
  for (std::int64_t begin = 0; begin < view.count(); begin += length) {
    const View values = view.slice(begin, std::min(length, view.count() - begin));
    const std::size_t at = static_cast<std::size_t>(begin / length) % pieces_.size();
    pieces_[at].copied.synchronize();
    fill(begin, part(at, values));
    device_->kernels().convert(stream, part(at, values), values);
    pieces_[at].copied = stream.record();
  }
  stream.synchronize();
}

}  // namespace zero
