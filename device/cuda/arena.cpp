// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/arena.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

#include "base/checked_math.h"
#include "device/cuda/check.h"

namespace zero::cuda {
namespace {

/// The first free range of `bytes`, cut from its front; null where there is none.
std::byte* cut(std::map<std::byte*, std::int64_t>& free, std::int64_t bytes) {
  const auto fits = [bytes](const auto& range) { return range.second >= bytes; };
  const auto found = std::ranges::find_if(free, fits);
  if (found == free.end()) return nullptr;
  const auto [data, size] = *found;
  free.erase(found);
  if (size > bytes) free.emplace(data + bytes, size - bytes);
  return data;
}

/// Puts a range back and joins it with its neighbours.
void join(std::map<std::byte*, std::int64_t>& free, std::byte* data, std::int64_t bytes) {
  auto here = free.emplace(data, bytes).first;
  const auto next = std::next(here);
  if (next != free.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free.erase(next);
  }
  if (here == free.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  free.erase(here);
}

}  // namespace

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) static_cast<void>(cudaFree(chunk.data));
}

std::byte* Arena::from_driver(std::int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the caller reports it, with the ledger
    return nullptr;
  }
  check(status, "allocate device memory");
  taken_ += round_up(bytes, kChunk);
  return static_cast<std::byte*>(data);
}

void* Arena::take(std::int64_t bytes) {
  if (bytes >= kLarge) return from_driver(bytes);
  const std::int64_t rounded = round_up(bytes, kAlignment);
  for (Chunk& chunk : chunks_) {
    if (std::byte* const data = cut(chunk.free, rounded)) return data;
  }
  std::byte* const data = from_driver(kChunk);
  if (data == nullptr) return nullptr;
  chunks_.push_back({data, {{data, kChunk}}});
  return cut(chunks_.back().free, rounded);
}

void Arena::give_back(void* data, std::int64_t bytes) noexcept {
  if (bytes >= kLarge) {
    static_cast<void>(cudaFree(data));
    taken_ -= round_up(bytes, kChunk);
    return;
  }
  auto* const at = static_cast<std::byte*>(data);
  const auto holds = [at](const Chunk& chunk) {
    return at >= chunk.data && at < chunk.data + kChunk;
  };
  const auto chunk = std::ranges::find_if(chunks_, holds);
  join(chunk->free, at, round_up(bytes, kAlignment));
}

}  // namespace zero::cuda
