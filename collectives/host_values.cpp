// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_values.h"

#include <algorithm>
#include <functional>

namespace zero {
namespace {

constexpr std::int64_t kBytes = std::int64_t{256} << 10;  // bytes of one part

Buffer take_buffer(Device& device) {
  return device.allocate(kBytes, DType::u8, MemoryClass::other, "values of the host");
}

/// Runs `collective` on the values in place, or part by part on a copy in device memory.
void run(Device& device, View values, const std::function<void(const View&)>& collective) {
  Stream& stream = device.communication();
  if (device.memory() == MemorySpace::host) {
    collective(values);
    return stream.synchronize();
  }
  const Buffer buffer = take_buffer(device);
  const std::int64_t length = kBytes / size_of(values.dtype());
  for (std::int64_t begin = 0; begin < values.count(); begin += length) {
    const View host = values.slice(begin, std::min(length, values.count() - begin));
    const View part = buffer.view().reinterpret(host.dtype(), host.count());
    device.kernels().convert(stream, host, part);
    collective(part);
    device.kernels().convert(stream, part, host);
    stream.synchronize();
  }
}

/// One part of each slice, gathered in `buffer`.
void gather_part(Communicator& communicator, Device& device, const Slices& host, View buffer,
                 const Tag& tag) {
  Stream& stream = device.communication();
  Slices packed{.buffer = buffer, .ranges = {}};
  for (std::int64_t begin = 0; const Slices::Range& range : host.ranges) {
    packed.ranges.push_back({begin, range.count});
    begin += range.count;
  }
  const auto copy = [&](int rank, const Slices& from, const Slices& to) {
    if (from.of(rank).empty()) return;
    device.kernels().convert(stream, from.of(rank), to.of(rank));
  };
  copy(communicator.rank(), host, packed);
  communicator.all_gather(packed.of(communicator.rank()), packed, stream, tag);
  for (int rank = 0; rank < host.world(); ++rank) {
    if (rank != communicator.rank()) copy(rank, packed, host);
  }
  stream.synchronize();
}

}  // namespace

void host_all_reduce(Communicator& communicator, Device& device, View values, ReduceOp op,
                     const Tag& tag) {
  run(device, values,
      [&](const View& part) { communicator.all_reduce(part, op, device.communication(), tag); });
}

void host_broadcast(Communicator& communicator, Device& device, View values, int root,
                    const Tag& tag) {
  run(device, values,
      [&](const View& part) { communicator.broadcast(part, root, device.communication(), tag); });
}

void host_all_gather(Communicator& communicator, Device& device, const Slices& values,
                     const Tag& tag) {
  if (device.memory() == MemorySpace::host) {
    communicator.all_gather(values.of(communicator.rank()), values, device.communication(), tag);
    return device.communication().synchronize();
  }
  const Buffer buffer = take_buffer(device);
  const DType dtype = values.buffer.dtype();
  const View all = buffer.view().reinterpret(dtype, kBytes / size_of(dtype));
  const std::int64_t length = std::max<std::int64_t>(1, all.count() / values.world());
  for (std::int64_t begin = 0; begin < values.largest(); begin += length) {
    gather_part(communicator, device, values.part(begin, length), all, tag);
  }
}

std::vector<std::string> all_gather_texts(Communicator& communicator, Device& device,
                                          std::string_view mine, std::string_view purpose) {
  const auto world = static_cast<std::size_t>(communicator.size());
  const auto self = static_cast<std::size_t>(communicator.rank());
  if (!device.has_memory()) {  // a plan: all ranks agree
    plan_host_values(device);
    return {world, std::string(mine)};
  }

  const Tag tag{std::string(purpose)};
  std::vector<std::int64_t> lengths(world);
  lengths[self] = static_cast<std::int64_t>(mine.size());
  host_all_gather(communicator, device,
                  Slices::even(View::of(std::span(lengths)), communicator.size()), tag);

  Slices texts;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    texts.ranges.push_back({total, length});
    total += length;
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(total));
  texts.buffer = View::of(std::span(bytes));
  std::copy(mine.begin(), mine.end(), bytes.begin() + texts.ranges[self].begin);
  host_all_gather(communicator, device, texts, tag);

  std::vector<std::string> result;
  for (const auto& [begin, length] : texts.ranges) {
    result.emplace_back(bytes.begin() + begin, bytes.begin() + begin + length);
  }
  return result;
}

void plan_host_values(Device& device) {
  if (device.memory() == MemorySpace::device) static_cast<void>(take_buffer(device));
}

}  // namespace zero
