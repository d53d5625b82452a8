// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/stop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zero {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  ZERO_CHECK(std::ranges::none_of(stops_, &std::string::empty),
             "a stop string is empty; give each at least one byte, or none");
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return "";
  kept_ += text;
  std::size_t end = std::string::npos;  // of the stop string that is complete first
  std::size_t begin = kept_.size();
  std::size_t safe = kept_.size();
  for (const std::string& stop : stops_) {
    const std::size_t at = kept_.find(stop);
    if (at != std::string::npos) {
      const std::size_t behind = at + stop.size();
      if (behind < end || (behind == end && at < begin)) {
        begin = at;
        end = behind;
      }
    }
    for (std::size_t tail = std::min(stop.size() - 1, kept_.size()); tail > 0; --tail) {
      if (kept_.ends_with(std::string_view(stop).substr(0, tail))) {
        safe = std::min(safe, kept_.size() - tail);
        break;
      }
    }
  }
  stopped_ = end != std::string::npos;
  std::string out = kept_.substr(0, stopped_ ? begin : safe);
  kept_.erase(0, stopped_ ? std::string::npos : safe);
  return out;
}

std::string StopStrings::finish() { return std::exchange(kept_, {}); }

}  // namespace zero
