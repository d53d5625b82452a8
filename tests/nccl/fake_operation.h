// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl/check.h"
#include "tests/nccl/fake_stream.h"

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

struct Rendezvous;

/// What one rank has posted.
struct Operation {
  Kind kind = Kind::send;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;  ///< as the call counts
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  ///< the root too
  cudaStream_t stream = nullptr;
  int rank = 0;
  std::thread::id thread{};  ///< that posted it, and puts it on the stream
  std::shared_ptr<Rendezvous> rendezvous{};
  bool done = false;   ///< it is on its stream
  bool wrong = false;  ///< the ranks do not agree

  /// "AllGather 12 x uint8", what must be the same on all ranks.
  std::string text() const;
  std::size_t bytes() const;  ///< of `count` elements
};
using OperationPtr = std::shared_ptr<Operation>;

/// The operations that make one: of all ranks, in rank order, or of a sender and a receiver. As a
/// kernel of NCCL's on every rank, it reads a rank's memory and writes it in the order of that
/// rank's stream, and writes once all have come.
struct Rendezvous {
  std::vector<OperationPtr> ranks;
  /// What a rank's memory held when its stream came, and the point behind.
  struct Given {
    std::shared_ptr<std::vector<std::byte>> values{};
    Point behind{};
    bool is_queued = false;
  };
  std::vector<Given> given{};
};

struct Clique;

/// Hands an operation to a communicator, in the thread's open group or at once.
ncclResult_t post(ncclComm_t comm, Operation operation);

/// Lets operations of as many ranks meet; they are wrong where they differ.
void meet(std::vector<OperationPtr> ranks);
/// Puts what `operation` reads on its stream, if it has met others.
void give(const OperationPtr& operation);
/// Puts what it writes there, if the others have given theirs; it is done then.
void take(const OperationPtr& operation);

}  // namespace zero::test::fake_nccl
