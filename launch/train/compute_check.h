// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "launch/train/compute_findings.h"
#include "model/block_check.h"

namespace zero {

class Device;
class Engine;
class Mesh;
class Model;

/// Shows that cores compute what they should: every so many steps a block is drawn (the same on all
/// ranks), and behind its forward pass in the step's first micro-batch each rank computes it once
/// more, and once from the input of the data-parallel rank before. Results are exact, so the bits
/// are the same, or a core or memory is at fault. Part of TrainingState: its memory is planned.
class ComputeCheck final : public BlockCheck {
 public:
  /// Behind model.allocate(). Throws zero::Error if no block's input is kept. All must outlive
  /// this.
  ComputeCheck(std::int64_t every, std::uint64_t seed, Engine& engine, Mesh& mesh,
               const Model& model);

  bool wants(std::int64_t layer) override;
  /// Collective.
  void check(const BlockPass& pass, const std::function<void()>& again) override;

  /// What the checks since the last call have found: the same on all ranks.
  struct Found {
    std::vector<std::string> lines{};   ///< for users, one a finding
    std::optional<std::string> over{};  ///< why the run has to end
  };
  Found take();

 private:
  PassHashes hash(const BlockPass& pass) const;
  void receive_input(const BlockPass& pass);
  void swap_input(const BlockPass& pass);
  std::vector<CheckedPass> gather(const CheckedPass& mine, std::size_t outputs) const;
  void tell(const BlockPass& pass, const std::vector<ComputeFinding>& findings);

  std::int64_t every_;
  std::uint64_t seed_;
  Engine& engine_;
  Mesh& mesh_;
  Device& device_;
  std::vector<std::int64_t> blocks_;  // those that can be drawn
  Buffer input_;  // the other input: the peer's, or this rank's while the peer's is computed
  Buffer statistics_;
  std::int64_t checked_ = 0;  // the newest step
  HostFindings hosts_;
  Found found_;
};

}  // namespace zero
