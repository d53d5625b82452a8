// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"
#include "collectives/store.h"

namespace zero {

std::vector<std::string> exchange(const StoreSeat& seat, std::string_view key,
                                  std::string_view mine) {
  const auto name = [&](int rank) { return fmt::format("{}/{}", key, rank); };
  std::vector<std::string> names;
  for (int rank = 0; rank < seat.size; ++rank) names.push_back(name(rank));
  seat.store.set(name(seat.rank), mine);
  seat.store.wait(names, seat.timeout);
  std::vector<std::string> values;
  for (const std::string& one : names) values.push_back(seat.store.get(one, seat.timeout));
  return values;
}

std::vector<std::string> exchange(Communicator& communicator, Device& device, std::string_view mine,
                                  std::string_view purpose) {
  const auto world = static_cast<std::size_t>(communicator.size());
  const auto self = static_cast<std::size_t>(communicator.rank());
  if (!device.has_memory()) return {world, std::string(mine)};  // a plan: all ranks agree

  const Tag tag{std::string(purpose)};
  Stream& stream = device.communication();
  std::vector<std::int64_t> lengths(world);
  lengths[self] = static_cast<std::int64_t>(mine.size());
  const Slices shares = Slices::even(View::of(std::span(lengths)), communicator.size());
  communicator.all_gather(shares.of(communicator.rank()), shares, stream, tag);
  stream.synchronize();

  Slices texts;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    texts.ranges.push_back({total, length});
    total += length;
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(total));
  texts.buffer = View::of(std::span(bytes));
  std::copy(mine.begin(), mine.end(), bytes.begin() + texts.ranges[self].begin);
  communicator.all_gather(texts.of(communicator.rank()), texts, stream, tag);
  stream.synchronize();

  std::vector<std::string> result;
  for (const auto& [begin, length] : texts.ranges) {
    result.emplace_back(bytes.begin() + begin, bytes.begin() + begin + length);
  }
  return result;
}

}  // namespace zero
