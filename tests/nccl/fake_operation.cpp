// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/fake_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "tests/nccl/fake_nccl.h"

namespace zero::test::fake_nccl {
namespace {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 1;
  }
}

template <typename T>
T combined(T a, T b, ncclRedOp_t op) {
  if (op == ncclMax) return std::max(a, b);
  if (op == ncclMin) return std::min(a, b);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

bfloat16 combined(bfloat16 a, bfloat16 b, ncclRedOp_t op) {
  return to_bfloat16(combined(to_float(a), to_float(b), op));
}
float16 combined(float16 a, float16 b, ncclRedOp_t op) {
  return to_float16(combined(to_float(a), to_float(b), op));
}

template <typename T>
void add(std::byte* sums, const std::byte* values, std::size_t count, ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    T sum;
    T value;
    std::memcpy(&sum, sums + i * sizeof(T), sizeof(T));
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    sum = combined(sum, value, op);
    std::memcpy(sums + i * sizeof(T), &sum, sizeof(T));
  }
}

void add(const Operation& kind, std::byte* sums, const std::byte* values, std::size_t count) {
  switch (kind.type) {
    case ncclFloat32:
      return add<float>(sums, values, count, kind.op);
    case ncclFloat64:
      return add<double>(sums, values, count, kind.op);
    case ncclBfloat16:
      return add<bfloat16>(sums, values, count, kind.op);
    case ncclFloat16:
      return add<float16>(sums, values, count, kind.op);
    case ncclInt32:
      return add<std::int32_t>(sums, values, count, kind.op);
    default:
      return add<std::int64_t>(sums, values, count, kind.op);
  }
}

void copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

// Every rank's `count` elements from `offset` bytes on, summed rank after rank.
std::vector<std::byte> sum(const std::vector<OperationPtr>& ranks, std::size_t offset,
                           std::size_t count) {
  const Operation& first = *ranks.front();
  std::vector<std::byte> sums(first.from + offset,
                              first.from + offset + count * size_of(first.type));
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    add(first, sums.data(), ranks[rank]->from + offset, count);
  }
  return sums;
}

void reduce(const std::vector<OperationPtr>& ranks) {
  const Operation& first = *ranks.front();
  const bool scattered = first.kind == Kind::reduce_scatter;
  const std::size_t bytes = first.count * size_of(first.type);
  std::vector<std::vector<std::byte>> results;  // all are read before one is written
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    results.push_back(sum(ranks, scattered ? rank * bytes : 0, first.count));
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool wanted = first.kind != Kind::reduce || static_cast<int>(rank) == first.peer;
    if (wanted) copy_bytes(results[rank].data(), ranks[rank]->to, bytes);
  }
}

void gather(const std::vector<OperationPtr>& ranks) {
  const std::size_t bytes = ranks.front()->count * size_of(ranks.front()->type);
  for (const OperationPtr& to : ranks) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      copy_bytes(ranks[rank]->from, to->to + rank * bytes, bytes);
    }
  }
}

}  // namespace

std::string Operation::text() const {
  constexpr std::array kNames{"Send",      "Recv",          "AllGather", "Broadcast",
                              "AllReduce", "ReduceScatter", "Reduce",    "Window"};
  return fmt::format("{} {} of type {}{}", kNames.at(static_cast<std::size_t>(kind)), count,
                     static_cast<int>(type),
                     kind == Kind::all_gather ? "" : fmt::format(", {}", peer));
}

void move(Operation& send, Operation& receive) {
  send.wrong = receive.wrong = send.count != receive.count;
  if (!send.wrong) copy_bytes(send.from, receive.to, send.count * size_of(send.type));
  send.done = receive.done = true;
}

void run(const std::vector<OperationPtr>& ranks) {
  const bool agree = std::ranges::all_of(
      ranks, [&](const OperationPtr& rank) { return rank->text() == ranks.front()->text(); });
  for (const OperationPtr& rank : ranks) {
    rank->done = true;
    rank->wrong = !agree;
  }
  if (!agree) return;
  const Operation& first = *ranks.front();
  if (first.kind == Kind::window) return;
  if (first.kind == Kind::all_gather) return gather(ranks);
  if (first.kind != Kind::broadcast) return reduce(ranks);
  const Operation& root = *ranks[static_cast<std::size_t>(first.peer)];
  for (const OperationPtr& rank : ranks) {
    copy_bytes(root.from, rank->to, root.count * size_of(root.type));
  }
}

}  // namespace zero::test::fake_nccl

using zero::test::fake_nccl::Kind;
using zero::test::fake_nccl::post;

namespace {

const std::byte* bytes(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }

}  // namespace

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t) {
  return post(
      comm, {.kind = Kind::send, .from = bytes(from), .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t) {
  return post(comm,
              {.kind = Kind::receive, .to = bytes(to), .count = count, .type = type, .peer = peer});
}

// A window opens once all ranks have come, with as many bytes each.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes_of_each,
                                    ncclWindow_t* window, int flags) {
  if (flags != NCCL_WIN_COLL_SYMMETRIC || !zero::test::fake_nccl::allocated(memory) ||
      reinterpret_cast<std::uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return ncclInvalidArgument;
  }
  if (zero::test::fake_nccl::rank().has_windows) {
    *window = static_cast<ncclWindow_t>(memory);
  }
  return post(comm, {.kind = Kind::window, .count = bytes_of_each});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t) {
  return post(comm, {.kind = Kind::broadcast,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .peer = root});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
  return post(comm, {.kind = Kind::all_gather,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type});
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  return post(comm, {.kind = Kind::all_reduce,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .op = op});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  return post(comm, {.kind = Kind::reduce_scatter,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .op = op});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t) {
  return post(comm, {.kind = Kind::reduce,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .op = op,
                     .peer = root});
}
