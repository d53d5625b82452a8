// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "collectives/mpi/link.h"
#include "collectives/transport.h"

namespace zero::mpi {

/// Collectives of ranks that share no memory, in messages alone. Each rank compares its call with
/// that of the rank before it while the values travel.
class Messages final : public Transport {
 public:
  /// `link` must outlive this.
  explicit Messages(Link& link);

  void set_step(std::int64_t step) override { link_.set_step(step); }

  void all_gather(View mine, const Slices& full, std::string_view unit) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view unit) override;
  void all_reduce(View values, ReduceOp op, std::string_view unit) override;
  void all_to_all(const Slices& send, const Slices& receive, std::string_view unit) override;
  void broadcast(View values, int root, std::string_view unit) override;
  void barrier(std::string_view unit) override;

 private:
  void call(const Link::Intent& intent, const Link::Work& work);

  Link& link_;
};

}  // namespace zero::mpi
