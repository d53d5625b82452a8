// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "collectives/forwarding_backend.h"

namespace zero::testing {

/// On one rank, flips a bit of what stage 0's gathers of gradients brought: the host that computes
/// wrong.
class Flipping final : public ForwardingBackend {
 public:
  Flipping(const Communicator& inner, int victim) : ForwardingBackend(inner), victim_(victim) {}

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    ForwardingBackend::all_gather(mine, full, stream, tag);
    if (rank() != victim_ || tag.counted_as != Operation::all_reduce) return;
    stream.submit_host("flip", [other = full.of(0)] {
      if (other.empty()) return;
      float& value = other.as<float>()[0];
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << 20U));
    });
  }

 private:
  int victim_;
};

}  // namespace zero::testing
