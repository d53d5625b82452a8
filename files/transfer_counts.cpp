// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/transfer_counts.h"

#include <fmt/format.h>

#include <utility>

#include "base/message_text.h"

namespace zero::files {

void TransferCounts::use(std::string way, std::string note) {
  const std::lock_guard lock(mutex_);
  way_ = std::move(way);
  note_ = std::move(note);
}

void TransferCounts::wrote_direct(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  direct_ += bytes;
}

void TransferCounts::wrote_cached(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  cached_ += bytes;
}

void TransferCounts::refused_direct(std::string reason) {
  const std::lock_guard lock(mutex_);
  ++refused_;
  reason_ = std::move(reason);
}

std::string TransferCounts::text() const {
  const std::lock_guard lock(mutex_);
  const std::int64_t all = direct_ + cached_;
  std::string text = way_ + ", ";
  text += all == 0
              ? "nothing written yet"
              : fmt::format("O_DIRECT for {} of {}", decimal_bytes(direct_), decimal_bytes(all));
  if (refused_ > 0) {
    text += fmt::format(" ({} {} without O_DIRECT: {})", refused_, refused_ == 1 ? "file" : "files",
                        reason_);
  }
  return note_.empty() ? text : text + ", " + note_;
}

}  // namespace zero::files
