// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/activation_trace.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace zero {

void ActivationTrace::start(const View& memory) {
  memory_ = memory;
  moments_.clear();
  touches_.clear();
  told_.clear();
  transfers_.clear();
  lease_ = -1;
  in_operation_ = false;
}

// Backward that follows recompute of the same unit is told within one lease.
void ActivationTrace::unit(std::string_view name, Phase phase) {
  const bool within = phase == Phase::backward && phase_ == Phase::recompute && name == unit_;
  if (!within || lease_ < 0) ++lease_;
  unit_ = name;
  phase_ = phase;
}

void ActivationTrace::add_moment(std::string work) {
  moments_.push_back({lease_, unit_, phase_, std::move(work)});
  moment_begins();
}

void ActivationTrace::begin(const OpCost& cost) {
  add_moment(cost.name);
  in_operation_ = true;
}

void ActivationTrace::touches(const View& values, Access access) {
  const Bytes bytes = bytes_of(values);
  if (bytes.begin == bytes.end) return;
  if (!in_operation_) add_moment("fill");
  touch(bytes, access);
}

void ActivationTrace::copies(const View& from, const View& to) {
  const Bytes source = bytes_of(from);
  const Bytes result = bytes_of(to);
  if (source.begin == source.end && result.begin == result.end) return;
  add_moment("copy");
  touch(source, Access::read);
  touch(result, Access::write);
}

// Both sides are in use from the call on; the source until the result is used.
void ActivationTrace::moves(const View& from, const View& to) {
  const Bytes source = bytes_of(from);
  const Bytes result = bytes_of(to);
  if (source.begin == source.end && result.begin == result.end) return;
  add_moment("collective");
  touch(source, Access::read);
  if (!source.meets(result)) {
    touch(result, Access::write);
    transfers_.push_back({source, result});
    return;
  }
  // In place: a rank's own part of the result stays as it is.
  touch({result.begin, source.begin}, Access::write);
  touch({source.end, result.end}, Access::write);
}

void ActivationTrace::touch(const Bytes& bytes, Access access) {
  if (bytes.begin >= bytes.end) return;
  const int moment = static_cast<int>(moments_.size()) - 1;
  std::erase_if(transfers_, [&](const Transfer& transfer) {
    const bool over = transfer.to.meets(bytes);
    // Whoever writes anew where the values were has waited for the end before.
    const bool left = access == Access::write && transfer.from.meets(bytes);
    if (!over && !left) return false;
    const int read = left ? std::max(moment - 1, 0) : moment;
    touches_.push_back({read, transfer.from, Access::read, named(transfer.from)});
    return true;
  });
  touches_.push_back({moment, bytes, access, named(bytes)});
}

void ActivationTrace::tensor(std::string_view name, std::int64_t layer, const View& values) {
  const Named told{name, layer, bytes_of(values)};
  std::erase(told_, told);
  told_.push_back(told);
}

ActivationTrace::Bytes ActivationTrace::bytes_of(const View& view) const {
  if (view.empty() || memory_.empty()) return {};
  const auto* const begin = static_cast<const std::byte*>(view.data());
  const auto* const base = static_cast<const std::byte*>(memory_.data());
  if (begin < base || begin >= base + memory_.bytes()) return {};
  return {begin - base, begin - base + view.bytes()};
}

// Tensors share memory: a view is of the one that the model asked for last.
ActivationTrace::Named ActivationTrace::named(const Bytes& bytes) const {
  for (auto told = told_.rbegin(); told != told_.rend(); ++told) {
    if (told->bytes.begin <= bytes.begin && bytes.end <= told->bytes.end) return *told;
  }
  return {"activations", -1, bytes};
}

namespace {

/// The values of a run of bytes that all work uses alike.
struct Held {
  bool any = false;
  int first = -1;  ///< moment that wrote them; -1: none has
  int last = -1;   ///< moment that used them last
  std::string_view name;
  std::int64_t layer = -1;
  bool before = false;  ///< the run's values were read before they were written
};

bool same_life(const LiveRange& a, const LiveRange& b) {
  return a.name == b.name && a.layer == b.layer && a.first == b.first && a.last == b.last;
}

}  // namespace

std::vector<LiveRange> ActivationTrace::ranges() const {
  std::vector<std::int64_t> cuts;
  for (const Touch& touch : touches_) {
    cuts.push_back(touch.bytes.begin);
    cuts.push_back(touch.bytes.end);
  }
  std::ranges::sort(cuts);
  const auto repeated = std::ranges::unique(cuts);
  cuts.erase(repeated.begin(), repeated.end());
  const auto run_at = [&](std::int64_t cut) {
    return static_cast<std::size_t>(std::ranges::lower_bound(cuts, cut) - cuts.begin());
  };
  std::vector<Held> runs(cuts.size());
  std::vector<LiveRange> ranges;
  const auto close = [&](std::size_t run, int last) {
    const Held& held = runs[run];
    if (!held.any) return;
    const LiveRange range{held.name,  held.layer, cuts[run], cuts[run + 1] - cuts[run],
                          held.first, last};
    LiveRange* const before = ranges.empty() ? nullptr : &ranges.back();
    if (before != nullptr && same_life(*before, range) &&
        before->offset + before->bytes == range.offset) {
      before->bytes += range.bytes;
    } else {
      ranges.push_back(range);
    }
  };
  for (const Touch& touch : touches_) {
    for (std::size_t run = run_at(touch.bytes.begin); cuts[run] < touch.bytes.end; ++run) {
      Held& held = runs[run];
      if (touch.access == Access::write) {
        close(run, held.last);
        held = {true,       touch.moment, touch.moment, touch.tensor.name, touch.tensor.layer,
                held.before};
        continue;
      }
      if (!held.any) held = {true, -1, -1, touch.tensor.name, touch.tensor.layer, true};
      held.last = touch.moment;
    }
  }
  for (std::size_t run = 0; run + 1 < cuts.size(); ++run) {
    close(run, runs[run].before ? static_cast<int>(moments_.size()) : runs[run].last);
  }
  return ranges;
}

}  // namespace zero
