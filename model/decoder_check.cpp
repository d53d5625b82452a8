// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A block's forward pass once more, for a check of what it gives.
#include "model/decoder.h"

namespace zero {

std::vector<std::int64_t> Decoder::blocks_with_input() const {
  std::vector<std::int64_t> blocks;
  for (std::int64_t i = 0; i < decoder_.layers; ++i) {
    if (!recompute_.block(i).input && !memory_.partitioned(i)) blocks.push_back(i);
  }
  return blocks;
}

// What backward computes again lies where later parts of the pass, too, have their values.
BlockPass Decoder::block_pass(std::int64_t i) const {
  const DecoderMemory& m = memory_;
  const BlockRecompute again = recompute_.block(i);
  BlockPass pass{.layer = i, .input = m.x(i), .statistics = m.statistics(i)};
  if (!again.qkv) pass.outputs.push_back({"q, k and v", m.qkv(i)});
  if (!again.attended) pass.outputs.push_back({"attention's output", m.attended(i)});
  pass.outputs.push_back({"the residual stream behind attention", m.middle(i)});
  if (!again.hidden) pass.outputs.push_back({"the MLP's first product", m.hidden(i)});
  pass.outputs.push_back({"the MLP's output", m.branch(Within::forward)});
  return pass;
}

// The first pass took its input as a sum of two, of which one is gone: the kept input and the
// statistics that it had take their place, as in a recompute.
void Decoder::check_block(std::int64_t i, const Lease& unit) {
  if (check_ == nullptr || !check_->wants(i)) return;
  const auto finish = [&] {
    for (int k = 0; k < tensor_.chunks(); ++k) tensor_.wait(branch_sum(k));
  };
  finish();
  check_->check(block_pass(i), [&] {
    forward_parts(i, unit, Statistics::kept);
    finish();
  });
}

}  // namespace zero
