// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/grid.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/cuda/emulator/fiber.h"

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

namespace zero::cuda::emulated {
namespace {

constexpr unsigned kWarp = 32;

/// The threads of one warp that have come to a shuffle. Values of two exchanges are kept: a thread
/// that is one exchange ahead must not overwrite what others still have to read.
struct Warp {
  unsigned arrived = 0;
  unsigned exchanges = 0;
  std::source_location where;
  std::array<std::array<std::uint64_t, kWarp>, 2> values{};
};

/// Runs the blocks of one kernel after each other on the calling host thread. A fiber takes thread
/// after thread as long as none of them has to wait: a kernel without barriers is a plain loop.
class Grid {
 public:
  Grid(const Shape& shape, const std::function<void()>& thread)
      : shape_(shape), thread_(thread), warps_(shape.threads / kWarp), fiber_of_(shape.threads) {
    ZERO_CHECK(shape.threads > 0 && shape.threads <= 1024 && shape.threads % kWarp == 0,
               "kernel {}: {} threads a block, expected a multiple of 32 up to 1024", shape.name,
               shape.threads);
    shared_.resize(shape.shared_bytes / sizeof(uint4) + 1);
  }

  void run();
  void sync_block(std::source_location where);
  std::uint64_t exchange(std::uint64_t value, unsigned lane, std::source_location where);
  void* shared() { return shared_.data(); }
  /// On a fiber: one thread after another; leaves when there are no more.
  void work();
  unsigned thread() const { return current_; }

 private:
  void run_block();
  void start_fiber();
  void resume(Fiber& fiber);
  void begin_thread(unsigned thread);
  void set_current(unsigned thread);
  void wait();
  [[noreturn]] void diverged(std::source_location where, const char* what) const;

  Shape shape_;
  const std::function<void()>& thread_;
  std::vector<uint4> shared_;
  std::vector<Warp> warps_;
  std::vector<Fiber*> fiber_of_;  // of threads that have started
  std::vector<unsigned> ready_;   // threads that waited and may go on
  std::vector<Fiber*> idle_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  bool left_to_wait_ = false;
  bool backwards_ = false;
  unsigned current_ = 0;
  unsigned started_ = 0;
  unsigned ended_ = 0;
  unsigned arrived_ = 0;        // at the block's barrier
  std::source_location where_;  // where a thread waits, for messages
  std::source_location barrier_;
  std::vector<unsigned> at_barrier_;
  std::exception_ptr error_;
};

/// Fibers and tables of grids that have run, for the next on this host thread.
thread_local Grid* grid = nullptr;
thread_local std::vector<std::unique_ptr<Fiber>> spare_fibers;

void fiber_main() { grid->work(); }

void Grid::run() {
  Grid* const outer = std::exchange(grid, this);
  blockDim = dim3(shape_.threads);
  gridDim = shape_.blocks;
  for (unsigned z = 0; z < shape_.blocks.z && !error_; ++z) {
    for (unsigned y = 0; y < shape_.blocks.y && !error_; ++y) {
      for (unsigned x = 0; x < shape_.blocks.x && !error_; ++x) {
        blockIdx = {x, y, z};
        backwards_ = (x + y + z) % 2 == 1;
        run_block();
      }
    }
  }
  grid = outer;
  for (auto& fiber : fibers_) spare_fibers.push_back(std::move(fiber));
  if (error_) std::rethrow_exception(error_);
}

void Grid::run_block() {
  started_ = ended_ = arrived_ = 0;
  at_barrier_.clear();
  for (Warp& warp : warps_) warp.arrived = 0;
  std::ranges::fill(shared_, uint4{~0U, ~0U, ~0U, ~0U});  // NaN: shared memory is not initialised
  while (ended_ < shape_.threads && !error_) {
    if (!ready_.empty()) {
      const unsigned next = ready_.back();
      ready_.pop_back();
      set_current(next);
      resume(*fiber_of_[next]);
    } else if (started_ < shape_.threads) {
      start_fiber();
    } else {
      try {
        diverged(where_, "some threads wait there, others elsewhere");
      } catch (...) {
        error_ = std::current_exception();
      }
    }
  }
}

void Grid::start_fiber() {
  if (idle_.empty()) {
    if (spare_fibers.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
    } else {
      fibers_.push_back(std::move(spare_fibers.back()));
      spare_fibers.pop_back();
    }
    idle_.push_back(fibers_.back().get());
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  fiber->restart(fiber_main);
  resume(*fiber);
}

void Grid::resume(Fiber& fiber) {
  running_ = &fiber;
  left_to_wait_ = false;
  fiber.resume();
  if (!left_to_wait_) idle_.push_back(&fiber);
}

void Grid::work() {
  try {
    while (started_ < shape_.threads) {
      begin_thread(started_++);
      thread_();
      ++ended_;
      if (arrived_ > 0) diverged(where_, "some threads wait there, others have ended");
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  running_->leave();
}

void Grid::begin_thread(unsigned thread) {
  const unsigned index = backwards_ ? shape_.threads - 1 - thread : thread;
  fiber_of_[index] = running_;
  set_current(index);
}

void Grid::set_current(unsigned thread) {
  current_ = thread;
  threadIdx = {thread, 0, 0};
}

void Grid::wait() {
  left_to_wait_ = true;
  running_->leave();
}

void Grid::sync_block(std::source_location where) {
  if (ended_ > 0) diverged(where, "some threads have ended before");
  if (arrived_ > 0 && where.line() != barrier_.line()) {
    diverged(where, "other threads wait at another one");
  }
  where_ = barrier_ = where;
  if (++arrived_ < shape_.threads) {
    at_barrier_.push_back(current_);
    wait();
    return;
  }
  arrived_ = 0;
  ready_.insert(ready_.end(), at_barrier_.rbegin(), at_barrier_.rend());
  at_barrier_.clear();
}

std::uint64_t Grid::exchange(std::uint64_t value, unsigned lane, std::source_location where) {
  Warp& warp = warps_[current_ / kWarp];
  if (warp.arrived > 0 && where.line() != warp.where.line()) {
    diverged(where, "other threads of the warp wait at another one");
  }
  if (warp.arrived == 0) where_ = where;
  warp.where = where;
  auto& values = warp.values[warp.exchanges % 2];
  values[current_ % kWarp] = value;
  if (++warp.arrived < kWarp) {
    wait();
  } else {
    warp.arrived = 0;
    ++warp.exchanges;
    const unsigned first = current_ / kWarp * kWarp;
    for (unsigned i = kWarp; i > 0; --i) {
      if (first + i - 1 != current_) ready_.push_back(first + i - 1);
    }
  }
  return values[lane];
}

void Grid::diverged(std::source_location where, const char* what) const {
  fail("kernel {}, block ({}, {}, {}): a barrier or shuffle at {}:{} is not met by all threads: {}",
       shape_.name, blockIdx.x, blockIdx.y, blockIdx.z, where.file_name(), where.line(), what);
}

}  // namespace

void run_grid(const Shape& shape, const std::function<void()>& thread) {
  Grid(shape, thread).run();
}

void* shared_memory() { return grid->shared(); }

void sync_block(std::source_location where) { grid->sync_block(where); }

std::uint64_t exchange(std::uint64_t value, unsigned mask, unsigned lane,
                       std::source_location where) {
  ZERO_CHECK(mask == ~0U,
             "a shuffle or __syncwarp at {}:{} has mask {:#x}; only whole warps are "
             "emulated",
             where.file_name(), where.line(), mask);
  return grid->exchange(value, lane, where);
}

unsigned lane() { return grid->thread() % kWarp; }

}  // namespace zero::cuda::emulated
