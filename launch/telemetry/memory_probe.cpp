// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/memory_probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "device/cpu/parallel.h"
#include "device/device.h"

namespace zero {
namespace {

constexpr std::int64_t kGrain = 1 << 16;  // elements

void add_scaled(std::span<float> a, std::span<const float> b, std::span<const float> c) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] + 3.0F * c[i];
}

std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::array<std::uint64_t, 16> sums{};  // chains that do not wait for each other
  for (std::size_t i = 0; i + sums.size() <= words.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

struct MemoryProbe::State {
  explicit State(int with_threads)
      : threads(with_threads), device(cpu::open({.threads = threads})), count(array_bytes() / 4) {
    for (Buffer* buffer : {&a, &b, &c}) {
      *buffer = device->allocate(count, DType::fp32, MemoryClass::other, "probe");
      device->kernels().zero(device->compute(), buffer->view());
    }
  }

  /// Calls body(begin, count) for parts of the arrays on all threads; its seconds.
  template <typename Body>
  double over(const Body& body) const {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    cpu::parallel_for(threads, count, kGrain,
                      [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  int threads;
  std::unique_ptr<Device> device;
  std::int64_t count;  // elements of an array
  Buffer a, b, c;
  std::atomic<std::uint64_t> sink = 0;  // keeps the reads alive
  bool warm = false;
  Seconds seconds;
};

MemoryProbe::MemoryProbe(int threads) : state_(std::make_unique<State>(threads)) {}
MemoryProbe::~MemoryProbe() = default;

void MemoryProbe::pass() {
  State& s = *state_;
  const std::array<double, 3> taken{
      s.over([&](std::int64_t begin, std::int64_t count) {
        const View to = s.a.slice(begin, count);
        std::memcpy(to.data(), s.b.slice(begin, count).data(),
                    static_cast<std::size_t>(to.bytes()));
      }),
      s.over([&](std::int64_t begin, std::int64_t count) {
        add_scaled(s.a.slice(begin, count).as<float>(), s.b.slice(begin, count).as<float>(),
                   s.c.slice(begin, count).as<float>());
      }),
      s.over([&](std::int64_t begin, std::int64_t count) {
        const View words = s.b.slice(begin, count);
        s.sink += sum_of(
            {static_cast<const std::uint64_t*>(words.data()), static_cast<std::size_t>(count / 2)});
      })};
  if (!std::exchange(s.warm, true)) return;
  s.seconds.copy.push_back(taken[0]);
  s.seconds.triad.push_back(taken[1]);
  s.seconds.read.push_back(taken[2]);
}

std::int64_t MemoryProbe::array_bytes() {
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::clamp<std::int64_t>(memory / 24, 16 << 20, 256 << 20) / 64 * 64;
}

const MemoryProbe::Seconds& MemoryProbe::seconds() const { return state_->seconds; }

double MemoryProbe::rate() const {
  const Seconds& all = state_->seconds;
  if (all.copy.empty()) return 0;
  const auto bytes = static_cast<double>(array_bytes());
  return std::max(
      {2 * bytes / median(all.copy), 3 * bytes / median(all.triad), bytes / median(all.read)});
}

}  // namespace zero
