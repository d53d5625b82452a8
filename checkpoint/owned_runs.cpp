// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/owned_runs.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace zero {
namespace {

void put(std::string& text, std::int64_t value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Takes the integers of a text one by one.
class Integers {
 public:
  Integers(std::string_view text, std::size_t rank) : text_(text), rank_(rank) {}

  std::int64_t next() {
    std::int64_t value = 0;
    check(text_.size() >= sizeof(value));
    std::memcpy(&value, text_.data(), sizeof(value));
    text_.remove_prefix(sizeof(value));
    return value;
  }
  void check(bool right) const {
    ZERO_CHECK(right, "the runs of rank {} are malformed: {} bytes are left", rank_, text_.size());
  }
  bool empty() const { return text_.empty(); }

 private:
  std::string_view text_;
  std::size_t rank_;
};

StridedRun run_of(Integers& integers) {
  StridedRun run;
  run.begin = integers.next();
  run.count = integers.next();
  run.stride = integers.next();
  run.repeats = integers.next();
  integers.check(run.begin >= 0 && run.count > 0 && run.stride >= run.count && run.repeats > 0);
  return run;
}

}  // namespace

std::int64_t StridedRun::count_before(std::int64_t element) const {
  const std::int64_t distance = std::clamp<std::int64_t>(element - begin, 0, end() - begin);
  return distance / stride * count + std::min(count, distance % stride);
}

std::vector<StridedRun> strided_runs(std::span<const StateRun> runs) {
  std::vector<StridedRun> result;
  for (const StateRun& run : runs) {
    if (!run.first || run.count == 0) continue;
    if (!result.empty() && result.back().count == run.count) {
      StridedRun& last = result.back();
      const std::int64_t distance = run.begin - last.begin - (last.repeats - 1) * last.stride;
      if (last.repeats == 1) last.stride = distance;
      if (distance == last.stride) {
        ++last.repeats;
        continue;
      }
    }
    result.push_back({run.begin, run.count, run.count, 1});
  }
  return result;
}

std::string OwnedRuns::encode(std::span<const std::vector<StridedRun>> tensors) {
  std::string text;
  for (const std::vector<StridedRun>& runs : tensors) {
    put(text, std::ssize(runs));
    for (const StridedRun& run : runs) {
      for (const std::int64_t value : {run.begin, run.count, run.stride, run.repeats})
        put(text, value);
    }
  }
  return text;
}

OwnedRuns::OwnedRuns(std::span<const std::string> texts, std::size_t tensors)
    : ranks_(static_cast<int>(texts.size())), tensors_(tensors) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    Integers integers(texts[rank], rank);
    for (std::vector<Owned>& owned : tensors_) {
      for (std::int64_t left = integers.next(); left > 0; --left)
        owned.push_back({run_of(integers), static_cast<int>(rank), 0});
    }
    integers.check(integers.empty());
  }
  for (std::vector<Owned>& owned : tensors_) {
    std::ranges::stable_sort(owned, {}, [](const Owned& each) { return each.run.begin; });
    std::int64_t reach = 0;
    for (Owned& each : owned) each.reach = reach = std::max(reach, each.run.end());
  }
}

std::span<const OwnedRuns::Owned> OwnedRuns::overlapping(std::size_t tensor,
                                                         const FlatRange& wanted) const {
  const std::vector<Owned>& owned = tensors_.at(tensor);
  const auto first = std::ranges::upper_bound(owned, wanted.begin, {}, &Owned::reach);
  const auto last = std::ranges::lower_bound(owned, wanted.end(), {},
                                             [](const Owned& each) { return each.run.begin; });
  return first < last ? std::span(first, last) : std::span<const Owned>();
}

void OwnedRuns::for_each_in(std::size_t tensor, const FlatRange& wanted, const Visit& visit) const {
  for (const Owned& owned : overlapping(tensor, wanted)) {
    const StridedRun& run = owned.run;
    std::int64_t repeat = std::max<std::int64_t>(0, wanted.begin - run.begin) / run.stride;
    for (; repeat < run.repeats && run.begin + repeat * run.stride < wanted.end(); ++repeat) {
      const FlatRange part = FlatRange{run.begin + repeat * run.stride, run.count}.within(wanted);
      if (part.count > 0) visit(owned.rank, part.begin, part.count);
    }
  }
}

void OwnedRuns::count_in(std::size_t tensor, const FlatRange& wanted, const Count& visit) const {
  for (const Owned& owned : overlapping(tensor, wanted)) {
    const std::int64_t count =
        owned.run.count_before(wanted.end()) - owned.run.count_before(wanted.begin);
    if (count > 0) visit(owned.rank, count);
  }
}

}  // namespace zero
