// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "engine/state_reads.h"

namespace zero::toy {

/// A reader that copies all states of this rank's shard on the transfer stream.
class CopyingReader : public StateReader {
 public:
  /// The engine's device must outlive this.
  CopyingReader(Engine& engine, int rounds);
  ~CopyingReader() override;  ///< copies in flight use its memory: lets them end

  int rounds() const override { return rounds_; }
  void submit(int round) override;
  Event read(int unit) override { return last_[static_cast<std::size_t>(unit)]; }
  std::int64_t vote() override { return vote_; }
  void counted(std::int64_t sum) override { sums_.push_back(sum); }

  void set_vote(std::int64_t vote) { vote_ = vote; }
  const std::vector<std::int64_t>& sums() const { return sums_; }
  const std::vector<int>& submitted() const { return submitted_; }
  /// The copies, in the order of the states. Those that may run late run after all compute work.
  std::vector<float> copied();
  /// Those among all values, in that order, that the first `rounds` rounds copy.
  std::vector<float> of_rounds(int rounds, const std::vector<float>& all) const;

 private:
  struct Piece {
    LogicalTensor tensor;
    StateRun run;
    std::vector<float> values;
  };

  Engine& engine_;
  Device& device_;
  int rounds_;
  std::vector<Piece> pieces_;
  std::vector<Event> last_;  // per unit
  std::vector<int> submitted_;
  std::int64_t vote_ = 0;
  std::vector<std::int64_t> sums_;
};

}  // namespace zero::toy
