// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/mesh_shape.h"

namespace zero {

class Communicator;
class Device;
class Mesh;
class RunFaults;
struct TierNeeds;
struct TierPlace;

/// The ranks that answer prompts together. The first one reads prompts, prints answers and hears
/// signals; the ranks of a tensor group compute the same requests, other ranks other ones.
/// lay_out(), share(), any(), gather() and agree_on_room() are collective over all ranks, block the
/// host, and do nothing on one rank.
class AnswerRanks {
 public:
  /// Lays `world` out as a mesh of `replicate` copies of the model and tensor groups of `tensor`
  /// ranks; the ranks between them each keep a part of the weights. References must outlive the
  /// ranks. `device`: of several ranks; null on one. `faults`, if any, records their collectives.
  /// Throws zero::Error if the world's size is no multiple of `replicate` x `tensor`.
  AnswerRanks(Communicator& world, Device* device, int replicate, int tensor,
              RunFaults* faults = nullptr);
  ~AnswerRanks();
  /// Lays the same ranks out anew, likewise.
  void lay_out(int replicate, int tensor);

  bool first() const;
  int count() const;
  int on_this_host() const;
  const MeshShape& shape() const { return shape_; }
  /// Null: one rank.
  Mesh* mesh() { return mesh_.get(); }

  /// Ranks, or tensor groups of them, that answer requests of their own.
  int groups() const { return shape_.data_ranks(); }
  /// Whether this rank computes request `number`: requests are dealt out in turn.
  bool computes(std::size_t number) const;
  /// Whether this rank tells the first what its group has computed.
  bool speaks() const;

  /// The step of later collectives, for messages about long waits.
  void set_step(std::int64_t step);
  /// The first rank's text.
  std::string share(std::string text);
  /// Whether it is so on any rank.
  bool any(bool value);
  /// The texts of all ranks.
  std::vector<std::string> gather(const std::string& text);
  /// check_tier_folder() and agree_on_tier_room(): throws on every rank. Returns warnings.
  std::vector<std::string> agree_on_room(const TierPlace& place, const TierNeeds& needs);

 private:
  Communicator& world_;
  Device* device_;
  RunFaults* faults_;
  std::unique_ptr<Mesh> mesh_;
  MeshShape shape_{.replicate = 1, .shard = 1, .tensor = 1};
};

}  // namespace zero
