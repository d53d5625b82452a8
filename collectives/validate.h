// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/operation.h"
#include "collectives/slices.h"
#include "device/kernels.h"

/// The checks behind Communicator's public methods. Each throws
/// zero::Error naming rank, operation, purpose and both values.
namespace zero::validate {

/// The checked call: the beginning of every message.
struct Caller {
  int rank = 0;
  int world = 1;
  Operation operation = Operation::barrier;
  const Tag& tag;

  /// "[rank 3] reduce_scatter(h.0)"
  std::string name() const;
};

void tag(const Caller& caller);
/// One slice per rank, each inside the buffer, none overlapping another.
void slices(const Caller& caller, const Slices& slices, std::string_view name);
void all_gather(const Caller& caller, View mine, const Slices& full);
void reduce_scatter(const Caller& caller, const Slices& full, const ReduceEpilogue& epilogue);
void workspace(const Caller& caller, const Slices& full, const ReduceEpilogue& epilogue,
               View workspace, std::int64_t needed);
void all_reduce(const Caller& caller, View values);
void all_to_all(const Caller& caller, const Slices& send, const Slices& receive);
void broadcast(const Caller& caller, int root);

}  // namespace zero::validate
