// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/comm.h"

#include "base/error.h"
#include "collectives/nccl/check.h"

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

constexpr int kWindows = NCCL_VERSION(2, 27, 0);  // the first library with symmetric windows

// The first in which gathers without kernels (2.28) do not hang two ranks (NCCL's issue 2241).
constexpr int kCopyEngines = NCCL_VERSION(2, 31, 2);
constexpr int kNoKernels = 2;  // NCCL_CTA_POLICY_ZERO, which headers of 2.27 lack

int version_of_library() {
  int version = 0;
  check(ncclGetVersion(&version), "NCCL's version");
  return version;
}

ncclConfig_t config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Copy engines gather where buffers lie in windows: multiprocessors are left to the step.
  if (version_of_library() >= kCopyEngines) config.CTAPolicy = kNoKernels;
  config.blocking = 0;  // so that the watch can abort waiting calls
  config.splitShare = 1;
  return config;
}

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

std::shared_ptr<Comm> Comm::join(std::shared_ptr<Session> session, const Rendezvous& rendezvous) {
  const std::string who = fmt::format("[rank {}] start of NCCL", rendezvous.rank);
  ncclComm_t handle = nullptr;
  ncclConfig_t settings = config();
  session->run(
      who, &handle,
      [&] {
        check(ncclCommInitRankConfig(&handle, rendezvous.size, rendezvous.id, rendezvous.rank,
                                     &settings),
              who);
      },
      rendezvous.deadline);
  return std::make_shared<Comm>(std::move(session), handle);
}

std::shared_ptr<Comm> Comm::split(int color, int key) {
  const std::string who = "split of NCCL's communicator";
  ncclComm_t part = nullptr;
  ncclConfig_t settings = config();
  session_->run_collective(who, handle_, [&] {
    check(ncclCommSplit(handle_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part, &settings),
          who, handle_);
  });
  if (part == nullptr) return nullptr;
  session_->run(who, &part, [] {});
  return std::make_shared<Comm>(session_, part);
}

void Comm::group(const std::string& who, cudaStream_t stream,
                 const std::function<void(const Calls&)>& calls) {
  session_->run_collective(who, handle_, [&] {
    GroupGuard guard(who);
    calls(Calls(who, handle_, stream));
    guard.end();
  });
}

std::shared_ptr<void> Comm::allocate(std::int64_t bytes) {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, static_cast<std::size_t>(bytes)) != ncclSuccess) return nullptr;
  return {memory, [](void* data) { ncclMemFree(data); }};
}

std::shared_ptr<void> Comm::allocate_registered(const std::shared_ptr<Comm>& comm,
                                                std::int64_t bytes) {
  auto memory = allocate(bytes);
  return memory ? registered(comm, std::move(memory), bytes) : nullptr;
}

std::shared_ptr<void> Comm::allocate_window(const std::shared_ptr<Comm>& comm, std::int64_t bytes) {
  auto memory = allocate(bytes);
  if (!memory || version_of_library() < kWindows)
    return memory ? registered(comm, memory, bytes) : nullptr;
  ncclWindow_t window = nullptr;
  const std::string who = "a window of NCCL's ranks";
  comm->session_->run_collective(who, comm->handle_, [&] {
    check(ncclCommWindowRegister(comm->handle_, memory.get(), static_cast<std::size_t>(bytes),
                                 &window, NCCL_WIN_COLL_SYMMETRIC),
          who, comm->handle_);
  });
  if (window == nullptr) return registered(comm, memory, bytes);  // not supported by these GPUs
  void* const data = memory.get();
  return {data, [comm, memory, window](void*) {
            comm->session_->use(comm->handle_, [&](ncclComm_t handle) {
              static_cast<void>(ncclCommWindowDeregister(handle, window));
            });
          }};
}

std::shared_ptr<void> Comm::registered(const std::shared_ptr<Comm>& comm,
                                       std::shared_ptr<void> memory, std::int64_t bytes) {
  void* handle = nullptr;
  const auto enrol = [&] {
    check(ncclCommRegister(comm->handle_, memory.get(), static_cast<std::size_t>(bytes), &handle),
          "registering memory with NCCL", comm->handle_);
  };
  comm->session_->run("registering memory with NCCL", &comm->handle_, enrol);
  void* const data = memory.get();
  return {data, [comm, memory, handle](void*) {
            comm->session_->use(comm->handle_, [&](ncclComm_t own) {
              static_cast<void>(ncclCommDeregister(own, handle));
            });
          }};
}

}  // namespace zero::nccl
