// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/arena.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/checked_math.h"
#include "base/error.h"
#include "device/cuda/check.h"
#include "device/memory_ledger.h"

namespace zero::cuda {
namespace {

[[noreturn]] void fail_for(std::string_view device, MemoryClass missing,
                           const BytesByClass& reserve) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for the free memory");
  fail(
      "device {}: out of memory before the first step: the run needs (bytes) {}, and there is no "
      "room for its {}: {} of the GPU's {} are free; use more ranks, a higher stage or a smaller "
      "micro-batch",
      device, listed(reserve), name_of(missing), free, total);
}

}  // namespace

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) static_cast<void>(cudaFree(chunk.data));
}

std::byte* Arena::from_driver(std::int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears it: the caller reports it, with the ledger
    return nullptr;
  }
  check(status, "allocate device memory");
  taken_ += round_up(bytes, kChunk);
  most_taken_ = std::max(most_taken_, taken_);
  return static_cast<std::byte*>(data);
}

bool Arena::reserve(std::int64_t bytes) {
  const std::int64_t whole = round_up(bytes, kChunk);
  std::byte* const data = from_driver(whole);
  if (data == nullptr) return false;
  chunks_.push_back({data, whole, ArenaLayout(whole)});
  reserved_ = true;
  return true;
}

void* Arena::cut(Chunk& chunk, std::int64_t bytes) {
  const auto begin = chunk.layout.take(bytes);
  return begin ? chunk.data + *begin : nullptr;
}

void* Arena::take(std::int64_t bytes) {
  const bool large = bytes >= kLarge;
  for (Chunk& chunk : chunks_) {
    if (large && !(reserved_ && &chunk == &chunks_.front())) break;
    if (void* const data = cut(chunk, bytes)) return data;
  }
  std::byte* const data = from_driver(large ? bytes : kChunk);
  if (large || data == nullptr) return data;
  chunks_.push_back({data, kChunk, ArenaLayout(kChunk)});
  return cut(chunks_.back(), bytes);
}

void Arena::give_back(void* data, std::int64_t bytes) noexcept {
  auto* const at = static_cast<std::byte*>(data);
  const auto holds = [at](const Chunk& chunk) {
    return at >= chunk.data && at < chunk.data + chunk.bytes;
  };
  const auto chunk = std::ranges::find_if(chunks_, holds);
  if (chunk != chunks_.end()) return chunk->layout.give_back(at - chunk->data, bytes);
  static_cast<void>(cudaFree(data));
  taken_ -= round_up(bytes, kChunk);
}

std::int64_t Arena::high_water() const {
  if (!reserved_) return most_taken_;
  const Chunk& block = chunks_.front();
  return block.layout.high_water() + (most_taken_ - block.bytes);
}

Arenas::Arenas(std::string_view device, const BytesByClass& reserve) {
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t bytes = at(reserve, c);
    if (bytes > 0 && !of(c).reserve(bytes)) fail_for(device, c, reserve);
  }
}

BytesByClass Arenas::high_water() const {
  BytesByClass bytes{};
  for (std::size_t c = 0; c < bytes.size(); ++c) bytes[c] = arenas_[c].high_water();
  return bytes;
}

std::int64_t Arenas::taken() const {
  std::int64_t bytes = 0;
  for (const Arena& arena : arenas_) bytes += arena.taken();
  return bytes;
}

}  // namespace zero::cuda
