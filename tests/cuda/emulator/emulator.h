// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda/emulator/work_graph.h"

/// CUDA without a GPU, for tests: the functions of the CUDA runtime that the project calls, on
/// memory that host code cannot touch, with streams that run as late or as oddly as their waits
/// allow. One emulated machine for the process; streams of all its threads make progress when any
/// of them synchronizes.
namespace zero::cuda::emulated {

struct Settings {
  enum class Order {
    lazy,    ///< runs what a synchronize needs, and no more
    seeded,  ///< a legal order drawn from the seed, sometimes eager, sometimes late
    prompt,  ///< runs everything as soon as it may run: hides what is ordered by nothing
  };
  enum class Recording {
    off,
    on,  ///< graph() tells of all that runs; an event is complete for those alone who waited for it
  };
  Order order = Order::lazy;
  std::uint64_t seed = 0;
  Recording recording = Recording::off;
  int devices = 1;
  std::size_t memory = std::size_t{1} << 32;  ///< bytes of each device
  int driver_version = 13000;                 ///< 1000 * major + 10 * minor
  int capability = 90;      ///< 10 * major + minor; the build has code for 90a-real
  int last_capability = 0;  ///< of the last device, unless 0
  enum class Memory { own, hosts } memory_is = Memory::own;  ///< hosts: an integrated GPU
};

/// Begins anew: settings, log, errors, counters. No stream, event or device memory may be left over
/// (zero::Error says what is).
void reset(const Settings& settings = {});

/// The next call of `function` ("cudaMalloc") fails with `error`, once.
void fail_next(const std::string& function, cudaError_t error);
/// From now on every call fails with `error`, as after a kernel that broke the context.
void break_context(cudaError_t error);

/// What the streams were given, in the order in which it was given.
struct Item {
  enum class Kind { work, record, wait };
  Kind kind = Kind::work;
  std::string name;          ///< of the kernel; "memcpy", "memset", "host function"
  std::int64_t stream = 0;   ///< numbered from 1 in order of creation
  std::int64_t event = 0;    ///< record, wait: the event, numbered likewise
  std::int64_t version = 0;  ///< record, wait: which of the event's records
};
std::vector<Item> log();
/// Which entries of log() have run so far, in the order in which they ran.
std::vector<std::int64_t> run_order();
/// How many calls blocked the host until a device had run something.
std::int64_t synchronizations();
/// Calls of cudaMalloc and cudaMallocHost.
std::int64_t allocations();
/// What cudaMalloc was asked for, in order; also what it did not give.
struct Request {
  int device = 0;
  std::size_t bytes = 0;
};
std::vector<Request> requests();
/// Calls of a function of the runtime, "cudaLaunchKernel", but for those that destroy and free; of
/// a library's products: "library". Empty: all of them.
std::int64_t calls(const std::string& function = {});
/// What has been given to streams and done by host threads since reset(), of which the machine is
/// to record; with what each touched, where that is known (tsan_hooks.cpp).
WorkGraph graph();
/// What the calling thread, its streams and its memory are called in that graph: "rank 3".
void name_thread(const std::string& name);
/// The same of memory that was cut out of an allocation: "gathered/h.0".
void name_memory(const void* data, std::size_t bytes, const std::string& name);

/// For emulated libraries: queues `work` on `stream`; it runs with device memory open, once `ready`
/// says true (asked under the emulator's lock; empty: always). `ready` must become true through
/// calls into the emulator, such as another thread's enqueue.
cudaError_t enqueue(cudaStream_t stream, std::string name, std::function<void()> work,
                    std::function<bool()> ready = {});
/// Device memory is open to the calling thread while one lives: for a test that looks or plants.
class OpenMemory {
 public:
  OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
  ~OpenMemory();
};

}  // namespace zero::cuda::emulated
