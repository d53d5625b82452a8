// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/cache_demand.h"

#include <algorithm>
#include <vector>

#include "base/checked_math.h"

namespace zero {
namespace {

/// Scheduler's decisions on lengths alone, with blocks for all.
class LengthPasses {
 public:
  LengthPasses(std::span<const RequestLength> requests, const RequestPasses& passes,
               std::int64_t longest)
      : passes_(passes), longest_(longest), waiting_(requests.begin(), requests.end()) {
    std::ranges::stable_sort(waiting_, std::ranges::greater(), &RequestLength::priority);
  }

  std::int64_t most_blocks() {
    while (next_ < waiting_.size() || !running_.empty()) {
      join();
      read();
    }
    return most_;
  }

 private:
  struct Running {
    std::int64_t tokens = 0;  // of the prompt and the answer so far
    std::int64_t unread = 0;
    std::int64_t left = 0;  // of the answer
    bool generates() const { return unread == 1; }
  };

  // With the guesses that are read ahead.
  std::int64_t blocks(const Running& request, std::int64_t later = 0) const {
    const std::int64_t ahead = std::min(passes_.guesses, request.left - 1 - later);
    return div_ceil(request.tokens + later + std::max<std::int64_t>(ahead, 0),
                    passes_.block_tokens);
  }
  // `later` passes from now.
  std::int64_t blocks_of_all(std::int64_t later) const {
    std::int64_t sum = 0;
    for (const Running& each : running_) sum += blocks(each, later);
    return sum;
  }

  // A request joins if, beside its own, the running ones have a block each to grow.
  void join() {
    std::int64_t unread = 0;
    for (const Running& each : running_) unread += each.unread;
    while (next_ < waiting_.size() && unread < passes_.rows &&
           std::ssize(running_) < passes_.slots) {
      const auto growing = std::ranges::count_if(
          running_, [&](const Running& each) { return blocks(each) < longest_; });
      const RequestLength& joins = waiting_[next_++];
      running_.push_back({joins.prompt, joins.prompt, joins.answer});
      unread += joins.prompt;
      most_ = std::max(most_, blocks_of_all(0) + growing);
    }
  }

  // Passes until a request ends, or one.
  void read() {
    const bool steady = std::ranges::all_of(running_, &Running::generates) &&
                        (next_ == waiting_.size() || std::ssize(running_) == passes_.slots);
    const std::int64_t count = steady ? std::ranges::min(running_, {}, &Running::left).left : 1;
    most_ = std::max(most_, blocks_of_all(count - 1));
    std::int64_t room = passes_.rows - std::ranges::count_if(running_, &Running::generates);
    for (Running& each : running_) {
      if (!each.generates()) {
        const std::int64_t part = std::min(room, each.unread);
        room -= part;
        each.unread -= part;
        if (each.unread > 0) continue;
        each.unread = 1;
      }
      each.tokens += count;
      each.left -= count;
    }
    std::erase_if(running_, [](const Running& each) { return each.left == 0; });
  }

  const RequestPasses passes_;
  const std::int64_t longest_;  // blocks
  std::vector<RequestLength> waiting_;
  std::size_t next_ = 0;
  std::vector<Running> running_{};
  std::int64_t most_ = 0;
};

}  // namespace

CacheDemand cache_demand(std::span<const RequestLength> requests, const RequestPasses& passes) {
  CacheDemand demand;
  for (const RequestLength& each : requests) {
    const std::int64_t blocks = div_ceil(each.tokens(), passes.block_tokens);
    demand.longest = std::max(demand.longest, blocks);
    demand.all += blocks;
  }
  const std::int64_t slots = std::min(passes.slots, std::ssize(requests));
  demand.contiguous = checked_mul(demand.longest, slots);
  const std::int64_t most = LengthPasses(requests, passes, demand.longest).most_blocks();
  demand.at_once = std::clamp(most, demand.longest, std::max(demand.longest, demand.contiguous));
  return demand;
}

}  // namespace zero
