// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "collectives/decorator.h"

namespace zero::testing {

/// On one rank, flips a bit of what stage 0's gathers of gradients brought: the host that computes
/// wrong.
class Flipping final : public CommunicatorDecorator {
 public:
  Flipping(Communicator& inner, int victim) : CommunicatorDecorator(inner), victim_(victim) {}

 protected:
  void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    inner_.all_gather(mine, full, stream, tag);
    if (rank() != victim_ || tag.counted_as != Operation::all_reduce) return;
    stream.submit_host("flip", [other = full.of(0)] {
      if (other.empty()) return;
      float& value = other.as<float>()[0];
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << 20U));
    });
  }
  void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                         Stream& stream, const Tag& tag) override {
    inner_.reduce_scatter(full, epilogue, workspace, stream, tag);
  }
  void do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override {
    inner_.all_reduce(values, op, stream, tag);
  }
  void do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                     const Tag& tag) override {
    inner_.all_to_all(send, receive, stream, tag);
  }
  void do_broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    inner_.broadcast(values, root, stream, tag);
  }
  void do_barrier(Stream& stream, const Tag& tag) override { inner_.barrier(stream, tag); }

 private:
  int victim_;
};

}  // namespace zero::testing
