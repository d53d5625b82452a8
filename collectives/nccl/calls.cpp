// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "collectives/nccl/check.h"
#include "collectives/nccl/comm.h"

namespace zero::nccl {
namespace {

// The type of elements that are summed or compared; Communicator has refused the others.
ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::fp64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    default:
      return ncclSum;
  }
}

std::size_t bytes_of(View view) { return static_cast<std::size_t>(view.bytes()); }
std::size_t count_of(View view) { return static_cast<std::size_t>(view.count()); }

}  // namespace

void Calls::send(View view, int peer) const {
  if (view.empty()) return;
  check(ncclSend(view.data(), bytes_of(view), ncclUint8, peer, comm_, stream_), who_, comm_);
}

void Calls::receive(View view, int peer) const {
  if (view.empty()) return;
  check(ncclRecv(view.data(), bytes_of(view), ncclUint8, peer, comm_, stream_), who_, comm_);
}

void Calls::broadcast(View from, View to, int root) const {
  if (to.empty()) return;
  check(ncclBroadcast(from.data(), to.data(), bytes_of(to), ncclUint8, root, comm_, stream_), who_,
        comm_);
}

void Calls::all_gather(View mine, View all) const {
  if (mine.empty()) return;
  check(ncclAllGather(mine.data(), all.data(), bytes_of(mine), ncclUint8, comm_, stream_), who_,
        comm_);
}

void Calls::all_reduce(View values, ReduceOp op) const {
  if (values.empty()) return;
  check(ncclAllReduce(values.data(), values.data(), count_of(values), type_of(values.dtype()),
                      op_of(op), comm_, stream_),
        who_, comm_);
}

void Calls::reduce_scatter(View all, View mine) const {
  check(ncclReduceScatter(all.data(), mine.data(), count_of(mine), type_of(mine.dtype()), ncclSum,
                          comm_, stream_),
        who_, comm_);
}

void Calls::reduce(View from, View to, int root) const {
  if (from.empty()) return;
  check(ncclReduce(from.data(), to.data(), count_of(from), type_of(from.dtype()), ncclSum, root,
                   comm_, stream_),
        who_, comm_);
}

}  // namespace zero::nccl
