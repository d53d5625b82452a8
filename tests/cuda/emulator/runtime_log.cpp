// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/runtime.h"

// What the machine tells of a run.
namespace zero::cuda::emulated {

std::vector<Item> Runtime::log() {
  const Lock lock(mutex_);
  return log_;
}

std::vector<std::int64_t> Runtime::run_order() {
  const Lock lock(mutex_);
  return run_order_;
}

std::int64_t Runtime::synchronizations() {
  const Lock lock(mutex_);
  return synchronizations_;
}

std::int64_t Runtime::calls(std::string_view function) {
  const Lock lock(mutex_);
  if (const auto found = calls_.find(function); found != calls_.end()) return found->second;
  if (!function.empty()) return 0;
  std::int64_t all = 0;
  for (const auto& [name, count] : calls_) all += count;
  return all;
}

void Runtime::count_call(std::string_view function) {
  const Lock lock(mutex_);
  count(function);
}

void Runtime::count(std::string_view function) {
  const auto found = calls_.find(function);
  ++(found != calls_.end() ? found->second : calls_.emplace(function, 0).first->second);
}

std::int64_t Runtime::allocations() {
  const Lock lock(mutex_);
  return allocations_;
}

std::vector<Request> Runtime::requests() {
  const Lock lock(mutex_);
  return requests_;
}

WorkGraph Runtime::graph() {
  const Lock lock(mutex_);
  return recorder_ ? recorder_->graph() : WorkGraph{};
}

void Runtime::name_thread(const std::string& name) {
  const Lock lock(mutex_);
  if (recorder_) recorder_->name_thread(name);
}

}  // namespace zero::cuda::emulated
