// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "collectives/mpi/link.h"

namespace zero::mpi {

/// Collectives of ranks that share no memory, in messages alone. Each rank compares its call with
/// that of the rank before it while the values travel. Blocks the caller; one thread at a time.
class Messages {
 public:
  /// `link` must outlive this.
  explicit Messages(Link& link);

  // As in Communicator, on memory of this process, at once.
  void all_gather(View mine, const Slices& full, std::string_view unit);
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view unit);
  void all_reduce(View values, ReduceOp op, std::string_view unit);
  void all_to_all(const Slices& send, const Slices& receive, std::string_view unit);
  void broadcast(View values, int root, std::string_view unit);
  void barrier(std::string_view unit);

 private:
  void call(const Link::Intent& intent, const Link::Work& work);

  Link& link_;
};

}  // namespace zero::mpi
