// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "tests/cuda/emulator/runtime.h"

// The machine's memory.
namespace zero::cuda::emulated {
namespace {

/// What the machine itself does to memory is nobody's.
template <class Body>
auto untracked(const Body& body) {
  Tracker* const outer = std::exchange(tracker, nullptr);
  auto result = body();
  tracker = outer;
  return result;
}

}  // namespace

cudaError_t Runtime::allocate(int device, std::size_t bytes, void** data) {
  const Lock lock(mutex_);
  ++allocations_;
  requests_.push_back({device, bytes});
  std::size_t& used = used_.at(static_cast<std::size_t>(device));
  if (bytes > settings_.memory - used) return cudaErrorMemoryAllocation;
  *data = untracked([&] { return memory_.allocate(bytes); });
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  used += bytes;
  allocated_.emplace(*data, std::pair(device, bytes));
  if (recorder_)
    recorder_->add_memory(*data, bytes, fmt::format("device memory of {} bytes", bytes));
  return cudaSuccess;
}

cudaError_t Runtime::release(void* data) {
  Lock lock(mutex_);
  const auto found = allocated_.find(data);
  if (found == allocated_.end()) return cudaErrorInvalidValue;
  const auto [device, bytes] = found->second;
  run_all(lock, device);  // as cudaFree does
  if (recorder_) recorder_->free_memory(data, bytes, "cudaFree");
  used_.at(static_cast<std::size_t>(device)) -= bytes;
  memory_.release(data);
  allocated_.erase(data);
  return cudaSuccess;
}

void Runtime::name_memory(const void* data, std::size_t bytes, const std::string& name) {
  const Lock lock(mutex_);
  if (recorder_) recorder_->add_memory(data, bytes, name);
}

void* Runtime::allocate_pinned(std::size_t bytes) {
  const Lock lock(mutex_);
  ++allocations_;
  void* const data = untracked([&] { return pinned_.allocate(bytes); });
  if (recorder_)
    recorder_->add_memory(data, bytes, fmt::format("pinned memory of {} bytes", bytes));
  return data;
}

cudaError_t Runtime::release_pinned(void* data) {
  const Lock lock(mutex_);
  const std::size_t bytes = pinned_.release(data);
  if (recorder_) recorder_->free_memory(data, bytes, "cudaFreeHost");
  return bytes > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

void Runtime::memory_info(int device, std::size_t* free, std::size_t* total) {
  const Lock lock(mutex_);
  *total = settings_.memory;
  *free = settings_.memory - used_.at(static_cast<std::size_t>(device));
}

bool Runtime::may_touch(const void* data, std::size_t bytes) {
  const Lock lock(mutex_);
  const bool of_device = memory_.addresses().holds(reinterpret_cast<std::uintptr_t>(data));
  return !of_device || memory_.holds(data, bytes);
}

bool Runtime::is_pageable(const void* data) {
  const Lock lock(mutex_);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return !memory_.addresses().holds(address) && !pinned_.addresses().holds(address);
}

void Runtime::open_memory() {
  const Lock lock(mutex_);
  memory_.open();
}

void Runtime::close_memory() {
  const Lock lock(mutex_);
  memory_.close();
}

}  // namespace zero::cuda::emulated
