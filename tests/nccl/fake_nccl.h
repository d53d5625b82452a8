// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// NCCL without GPUs, in place of its library: communicators between threads of this process, whose
/// memory and streams are what fake_stream.h is linked with. As NCCL's non-blocking communicators
/// do, calls return at once and go on while they are asked whether they are through. Sums are made
/// in the order of ranks, one by one: not by the tree.
namespace zero::test::fake_nccl {

/// Of the calling thread, which is a rank, from now on.
struct Rank {
  int version = 22803;
  std::string gpu = "Fake GPU";
  std::string gpu_id{};  ///< empty: one of its own
  bool has_windows = true;
  int cta_policy = 0;  ///< that the rank's last communicator was started with
};
Rank& rank();

/// Every communicator of rank `rank` reports a remote error once `calls` more calls have been
/// posted on it.
void break_rank(int rank, int calls);
/// From now on an abort of a communicator of rank `rank` never returns.
void block_aborts(int rank);
/// What rank `rank` posted: "AllGather 12 bytes", in order, all communicators together.
std::vector<std::string> posted(int rank);
/// The same, and on which communicator: a number that its ranks have in common.
struct Call {
  int communicator = 0;
  std::string text;
};
std::vector<Call> calls(int rank);
/// Communicators and blocks of memory that nobody has given back.
int alive();
/// Whether `memory` is a block of ncclMemAlloc that nobody has given back.
bool allocated(const void* memory);
/// Forgets what was posted, and what is to break or block.
void reset();

}  // namespace zero::test::fake_nccl
