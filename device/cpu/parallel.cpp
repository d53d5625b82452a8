// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

#include "base/checked_math.h"
#include "device/cpu/team.h"

namespace zero::cpu {
namespace {

using Body = std::function<void(std::int64_t, std::int64_t)>;

/// The rest of a thread's range, from whose back others may take: begin and end in one word.
class alignas(64) Share {
 public:
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t size() const { return end - begin; }
  };

  void put(Range range) { range_.store(range); }
  /// Empty at the end.
  Range take_front(std::uint32_t part) {
    return take([part](Range left) { return std::min(part, left.size()); },
                [](Range& left, std::uint32_t size) {
                  left.begin += size;
                  return Range{left.begin - size, left.begin};
                });
  }
  Range take_half() {
    return take([](Range left) { return left.size() - left.size() / 2; },
                [](Range& left, std::uint32_t size) {
                  left.end -= size;
                  return Range{left.end, left.end + size};
                });
  }

 private:
  template <class Size, class Cut>
  Range take(const Size& size_of, const Cut& cut) {
    Range before = range_.load();
    for (;;) {
      Range left = before;
      const Range taken = cut(left, size_of(before));
      if (taken.size() == 0 || range_.compare_exchange_weak(before, left)) return taken;
    }
  }

  std::atomic<Range> range_;
};

/// The next part of a thread: of its own share or, if that is done, of half of another's.
Share::Range next_part(std::vector<Share>& shares, std::size_t thread, std::uint32_t part) {
  Share::Range range = shares[thread].take_front(part);
  for (std::size_t i = 1; i < shares.size() && range.size() == 0; ++i) {
    range = shares[(thread + i) % shares.size()].take_half();
    if (range.size() <= part) continue;
    // Only the rest is published for others to take; this part is done next.
    shares[thread].put({range.begin + part, range.end});
    range.end = range.begin + part;
  }
  return range;
}

}  // namespace

void parallel_for(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  ZERO_CHECK(threads > 0 && grain > 0,
             "parallel_for needs threads and grain above 0, got {} and {}", threads, grain);
  if (count <= 0) return;
  if (threads == 1 || count <= grain) {
    body(0, count);
    return;
  }
  const std::int64_t grains = div_ceil(count, grain);
  const std::int64_t shares = std::min<std::int64_t>(threads, grains);
  std::mutex mutex;
  std::exception_ptr error;
  Team::of_this_thread().run(shares, [&](std::int64_t share) {
    const std::int64_t begin = grains * share / shares * grain;
    const std::int64_t end = std::min(count, grains * (share + 1) / shares * grain);
    try {
      body(begin, end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

void parallel_shares(int threads, std::int64_t count, std::int64_t part,
                     const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  ZERO_CHECK(threads > 0 && part > 0 && part <= kMost && count <= kMost,
             "parallel_shares needs threads and parts above 0 and at most {}, got {} threads and "
             "{} in parts of {}",
             kMost, threads, count, part);
  if (count <= 0) return;
  const std::int64_t sharing = std::min<std::int64_t>(threads, count);
  const auto most = static_cast<std::uint32_t>(std::min(part, div_ceil(count, sharing)));
  std::vector<Share> shares(static_cast<std::size_t>(sharing));
  for (std::int64_t i = 0; i < sharing; ++i) {
    shares[static_cast<std::size_t>(i)].put(
        {static_cast<std::uint32_t>(count * i / sharing),
         static_cast<std::uint32_t>(count * (i + 1) / sharing)});
  }
  // Other threads do the share of a thread that starts late or never.
  parallel_for(threads, sharing, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t thread = first; thread < last; ++thread) {
      const auto at = static_cast<std::size_t>(thread);
      for (auto range = next_part(shares, at, most); range.size() > 0;
           range = next_part(shares, at, most)) {
        body(thread, range.begin, range.end);
      }
    }
  });
}

}  // namespace zero::cpu
