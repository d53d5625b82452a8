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

using Values = std::vector<std::shared_ptr<std::vector<std::byte>>>;

// Every rank's `count` elements from `offset` bytes on, summed rank after rank.
std::vector<std::byte> sum(const Operation& kind, const Values& given, std::size_t offset) {
  const std::byte* const first = given.front()->data() + offset;
  std::vector<std::byte> sums(first, first + kind.bytes());
  for (std::size_t rank = 1; rank < given.size(); ++rank) {
    add(kind, sums.data(), given[rank]->data() + offset, kind.count);
  }
  return sums;
}

// What rank `self` of a rendezvous gets.
std::vector<std::byte> result(const Operation& kind, const Values& given, std::size_t self) {
  switch (kind.kind) {
    case Kind::receive:
      return *given.front();  // the sender's
    case Kind::broadcast:
      return *given[static_cast<std::size_t>(kind.peer)];
    case Kind::all_gather: {
      std::vector<std::byte> all;
      for (const auto& each : given) all.insert(all.end(), each->begin(), each->end());
      return all;
    }
    case Kind::reduce_scatter:
      return sum(kind, given, self * kind.bytes());
    default:
      return sum(kind, given, 0);
  }
}

std::size_t bytes_given(const Operation& operation, std::size_t self) {
  switch (operation.kind) {
    case Kind::receive:
    case Kind::window:
      return 0;
    case Kind::broadcast:
      return static_cast<int>(self) == operation.peer ? operation.bytes() : 0;
    case Kind::reduce_scatter:
      return operation.bytes() * operation.rendezvous->ranks.size();
    default:
      return operation.bytes();
  }
}

std::size_t bytes_taken(const Operation& operation, std::size_t self) {
  switch (operation.kind) {
    case Kind::send:
    case Kind::window:
      return 0;
    case Kind::reduce:
      return static_cast<int>(self) == operation.peer ? operation.bytes() : 0;
    case Kind::all_gather:
      return operation.bytes() * operation.rendezvous->ranks.size();
    default:
      return operation.bytes();
  }
}

std::size_t place_of(const OperationPtr& operation) {
  const auto& ranks = operation->rendezvous->ranks;
  return static_cast<std::size_t>(std::ranges::find(ranks, operation) - ranks.begin());
}

constexpr std::array kNames{"Send",      "Recv",          "AllGather", "Broadcast",
                            "AllReduce", "ReduceScatter", "Reduce",    "Window"};
const char* name_of(Kind kind) { return kNames.at(static_cast<std::size_t>(kind)); }

}  // namespace

std::string Operation::text() const {
  return fmt::format("{} {} of type {}{}", name_of(kind), count, static_cast<int>(type),
                     kind == Kind::all_gather ? "" : fmt::format(", {}", peer));
}

std::size_t Operation::bytes() const { return count * size_of(type); }

void meet(std::vector<OperationPtr> ranks) {
  const Operation& first = *ranks.front();
  const bool agree = std::ranges::all_of(ranks, [&](const OperationPtr& rank) {
    return first.kind == Kind::send ? rank->count == first.count : rank->text() == first.text();
  });
  auto rendezvous = std::make_shared<Rendezvous>(Rendezvous{.ranks = std::move(ranks)});
  rendezvous->given.resize(rendezvous->ranks.size());
  for (const OperationPtr& rank : rendezvous->ranks) {
    rank->done = rank->wrong = !agree;
    if (agree) rank->rendezvous = rendezvous;
  }
}

void give(const OperationPtr& operation) {
  if (!operation->rendezvous) return;
  const std::size_t self = place_of(operation);
  Rendezvous::Given& given = operation->rendezvous->given[self];
  if (given.is_queued) return;
  given.is_queued = true;
  given.values = std::make_shared<std::vector<std::byte>>(bytes_given(*operation, self));
  if (given.values->empty()) return;
  const std::byte* const from = operation->from;
  put(operation->stream, fmt::format("{} reads", name_of(operation->kind)),
      {from, given.values->size(), Touched::How::read},
      [values = given.values, from] { std::memcpy(values->data(), from, values->size()); });
  given.behind = record(operation->stream);
}

void take(const OperationPtr& operation) {
  if (!operation->rendezvous) return;
  const std::vector<Rendezvous::Given>& given = operation->rendezvous->given;
  if (!std::ranges::all_of(given, &Rendezvous::Given::is_queued)) return;
  const std::size_t self = place_of(operation);
  const std::size_t bytes = bytes_taken(*operation, self);
  operation->done = true;
  if (bytes > 0) {
    Values values;
    for (const Rendezvous::Given& each : given) {
      values.push_back(each.values);
      if (each.behind && &each != &given[self]) wait(operation->stream, each.behind);
    }
    Operation kind = *operation;
    kind.rendezvous = nullptr;
    put(operation->stream, fmt::format("{} writes", name_of(kind.kind)),
        {kind.to, bytes, Touched::How::written}, [kind, values = std::move(values), self, bytes] {
          copy_bytes(result(kind, values, self).data(), kind.to, bytes);
        });
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
                      ncclComm_t comm, cudaStream_t stream) {
  return post(comm, {.kind = Kind::send,
                     .from = bytes(from),
                     .count = count,
                     .type = type,
                     .peer = peer,
                     .stream = stream});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return post(comm, {.kind = Kind::receive,
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .peer = peer,
                     .stream = stream});
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
                           ncclComm_t comm, cudaStream_t stream) {
  return post(comm, {.kind = Kind::broadcast,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .peer = root,
                     .stream = stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return post(comm, {.kind = Kind::all_gather,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .stream = stream});
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return post(comm, {.kind = Kind::all_reduce,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .op = op,
                     .stream = stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return post(comm, {.kind = Kind::reduce_scatter,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .op = op,
                     .stream = stream});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return post(comm, {.kind = Kind::reduce,
                     .from = bytes(from),
                     .to = bytes(to),
                     .count = count,
                     .type = type,
                     .op = op,
                     .peer = root,
                     .stream = stream});
}
