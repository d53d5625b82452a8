// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/slices.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero {

std::int64_t Slices::total() const {
  std::int64_t sum = 0;
  for (const Range& range : ranges) sum += range.count;
  return sum;
}

std::int64_t Slices::largest() const {
  std::int64_t most = 0;
  for (const Range& range : ranges) most = std::max(most, range.count);
  return most;
}

Slices Slices::part(std::int64_t begin, std::int64_t count) const {
  Slices parts{.buffer = buffer, .ranges = ranges};
  for (Range& range : parts.ranges) {
    const std::int64_t skipped = std::min(begin, range.count);
    range = {range.begin + skipped, std::min(count, range.count - skipped)};
  }
  return parts;
}

Slices Slices::even(View buffer, int world) {
  ZERO_CHECK(world >= 1 && buffer.count() % world == 0,
             "a buffer of {} elements cannot be cut into {} equal slices; pad it in the layout",
             buffer.count(), world);
  return strided(buffer, world, 0, buffer.count() / world);
}

Slices Slices::strided(View buffer, int world, std::int64_t begin, std::int64_t count) {
  ZERO_CHECK(world >= 1 && buffer.count() % world == 0,
             "a buffer of {} elements cannot be cut into {} equal shards; pad it in the layout",
             buffer.count(), world);
  const std::int64_t shard = buffer.count() / world;
  ZERO_CHECK(begin >= 0 && count >= 0 && begin <= shard - count,
             "slice [{}, {}) is outside a shard of {} elements", begin, begin + count, shard);
  Slices slices{.buffer = buffer, .ranges = {}};
  slices.ranges.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) slices.ranges.push_back({rank * shard + begin, count});
  return slices;
}

View share(View values, int rank, int world) {
  const std::int64_t begin = values.count() * rank / world;
  return values.slice(begin, values.count() * (rank + 1) / world - begin);
}

}  // namespace zero
