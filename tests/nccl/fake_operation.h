// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collectives/nccl/check.h"

namespace zero::test::fake_nccl {

enum class Kind {
  send,
  receive,
  all_gather,
  broadcast,
  all_reduce,
  reduce_scatter,
  reduce,
  window
};

/// What one rank has posted.
struct Operation {
  Kind kind = Kind::send;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;  ///< as the call counts
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  ///< the root too
  int rank = 0;
  bool done = false;
  bool wrong = false;  ///< the ranks do not agree

  /// "AllGather 12 x uint8", what must be the same on all ranks.
  std::string text() const;
};
using OperationPtr = std::shared_ptr<Operation>;

struct Clique;

/// Hands an operation to a communicator, in the thread's open group or at once.
ncclResult_t post(ncclComm_t comm, Operation operation);

/// What one rank sends another.
void move(Operation& send, Operation& receive);
/// A collective of all ranks, in rank order.
void run(const std::vector<OperationPtr>& ranks);

}  // namespace zero::test::fake_nccl
