// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/emulator.h"

#include <utility>

#include "tests/cuda/emulator/runtime.h"

namespace zero::cuda::emulated {

void reset(const Settings& settings) { Runtime::instance().reset(settings); }
void fail_next(const std::string& function, cudaError_t error) {
  Runtime::instance().fail_next(function, error);
}
void break_context(cudaError_t error) { Runtime::instance().break_context(error); }
std::vector<Item> log() { return Runtime::instance().log(); }
std::vector<std::int64_t> run_order() { return Runtime::instance().run_order(); }
std::int64_t synchronizations() { return Runtime::instance().synchronizations(); }
std::int64_t allocations() { return Runtime::instance().allocations(); }
std::vector<Request> requests() { return Runtime::instance().requests(); }
std::int64_t calls(const std::string& function) { return Runtime::instance().calls(function); }
WorkGraph graph() { return Runtime::instance().graph(); }
void name_thread(const std::string& name) { Runtime::instance().name_thread(name); }
void name_memory(const void* data, std::size_t bytes, const std::string& name) {
  Runtime::instance().name_memory(data, bytes, name);
}

cudaError_t enqueue(cudaStream_t stream, std::string name, std::function<void()> work,
                    std::function<bool()> ready) {
  Runtime::instance().count_call("library");
  QueuedItem item;
  item.work = std::move(work);
  item.ready = std::move(ready);
  return Runtime::instance().enqueue(stream, name, std::move(item));
}

OpenMemory::OpenMemory() { Runtime::instance().open_memory(); }
OpenMemory::~OpenMemory() { Runtime::instance().close_memory(); }

}  // namespace zero::cuda::emulated
