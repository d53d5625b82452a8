// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/plan.h"

#include <bit>

#include "base/checked_math.h"

namespace zero::nccl {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements of a place, and bytes of the whole room

}  // namespace

Way way_of(const Slices& full) {
  const int world = full.world();
  const std::int64_t bytes = full.largest() * size_of(full.buffer.dtype());
  const bool few = world < kHalvingRanks || !std::has_single_bit(static_cast<unsigned>(world));
  return few || bytes > kHalvingBytes ? Way::direct : Way::halving;
}

std::vector<HalvingRound> halving(int rank, int world) {
  ZERO_CHECK(
      world >= 2 && std::has_single_bit(static_cast<unsigned>(world)) && rank >= 0 && rank < world,
      "halving for rank {} of {}; expected a power of two of ranks", rank, world);
  std::vector<HalvingRound> rounds;
  for (int bit = 1; bit < world; bit *= 2) {
    HalvingRound round{.partner = rank ^ bit, .keeps = {}, .gives = {}};
    const int settled = bit - 1;  // bits in which all slices left agree with this rank's
    for (int slice = 0; slice < world; ++slice) {
      if ((slice & settled) != (rank & settled)) continue;
      ((slice & bit) == (rank & bit) ? round.keeps : round.gives).push_back(slice);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

HalvingRoom halving_room(const Slices& full) {
  HalvingRoom room;
  room.places = full.world() / 2;
  room.stride = round_up(full.largest(), kAlignment);
  const std::int64_t elements = checked_mul(room.places, room.stride);
  room.sums_bytes = checked_mul(elements, size_of(DType::fp32));
  room.received_bytes = checked_mul(elements, size_of(full.buffer.dtype()));
  return room;
}

std::int64_t workspace(const Slices& full, Sums sums) {
  if (full.world() == 1) return 0;
  if (sums == Sums::fast) return full.largest();
  if (way_of(full) == Way::direct) return checked_mul(full.largest(), full.world() - 1);
  const HalvingRoom room = halving_room(full);
  const std::int64_t bytes = room.sums_bytes + room.received_bytes + kAlignment;
  return div_ceil(bytes, size_of(full.buffer.dtype()));
}

bool are_one_block(const Slices& full) {
  const Slices::Range first = full.ranges.front();
  for (std::size_t rank = 0; rank < full.ranges.size(); ++rank) {
    const auto& [begin, count] = full.ranges[rank];
    if (count != first.count || begin != first.begin + static_cast<std::int64_t>(rank) * count) {
      return false;
    }
  }
  return first.count > 0;
}

Buffer take_scratch(Device& device, int size) {
  if (size == 1) return {};
  return device.allocate(kScratch, DType::u8, MemoryClass::communication,
                         "scratch of NCCL's ranks");
}

bool gives_memory(int size, std::int64_t count, DType dtype) {
  return size > 1 && count > 0 && checked_mul(count, size_of(dtype)) >= kLeastWindow;
}

}  // namespace zero::nccl
