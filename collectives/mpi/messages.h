// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "collectives/collective_backend.h"
#include "collectives/mpi/link.h"

namespace zero::mpi {

/// Collectives of ranks that share no memory, by messages alone. Each rank compares its call with
/// that of the previous rank while the values travel.
class Messages final : public Transport {
 public:
  /// `link` must outlive this.
  explicit Messages(Link& link);

  void set_step(std::int64_t step) override { link_.set_step(step); }

  void all_gather(View mine, const Slices& full, std::string_view purpose) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view purpose) override;
  void all_reduce(View values, ReduceOp op, std::string_view purpose) override;
  void all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) override;
  void broadcast(View values, int root, std::string_view purpose) override;
  void barrier(std::string_view purpose) override;

 private:
  /// Most bytes of all_reduce's staging memory, for any values and world.
  static constexpr std::int64_t kStaging = std::int64_t{1} << 20;

  void call(const Link::CallSignature& signature, const Link::Work& work);
  void combine(View values, ReduceOp op);
  void combine_whole(View values, ReduceOp op);
  void combine_shares(View values, ReduceOp op);
  /// The values of all ranks, in rank order: each peer's in its slot of `buffer`, and this rank's
  /// `own`.
  std::vector<View> received_in(View buffer, View own) const;
  View staging(std::int64_t count, DType dtype);

  Link& link_;
  std::vector<std::byte> staging_;
};

}  // namespace zero::mpi
