// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "base/sign_of_life.h"
#include "device/cpu/parallel.h"
#include "ops/ops.h"

namespace zero {
namespace {

constexpr int kSamples = 5;
// Sizes grow until a product or a copy takes this long: enough to keep a device busy, and a copy's
// arrays exceed any cache.
constexpr double kProductSeconds = 1e-3;
constexpr double kCopySeconds = 1e-4;
constexpr std::int64_t kFirstSide = 64;
constexpr std::int64_t kLastSide = 8192;
constexpr std::int64_t kFirstCopy = std::int64_t{1} << 18;  // elements
constexpr std::int64_t kLastCopy = std::int64_t{1} << 28;
constexpr std::int64_t kRandom = std::int64_t{1} << 20;

constexpr std::int64_t kGrain = 1 << 16;  // elements

void add_scaled(std::span<float> a, std::span<const float> b, std::span<const float> c) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] + 3.0F * c[i];
}

std::uint64_t sum_of_words(std::span<const std::uint64_t> words) {
  std::array<std::uint64_t, 16> sums{};  // independent chains
  for (std::size_t i = 0; i + sums.size() <= words.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

/// A device's arrays, and work on them.
struct Trial {
  std::vector<Buffer> arrays{};
  std::unique_ptr<Ops> ops{};
  std::function<void()> submit{};
};

/// With random_floats().
void fill(Device& device, View view) {
  const std::int64_t count = std::min(kRandom, view.count());
  const Buffer random = device.allocate(count, DType::fp32, MemoryClass::other, "limits");
  Stream& stream = device.compute();
  device.kernels().generate(stream, random.view(), random_floats);
  for (std::int64_t begin = 0; begin < view.count(); begin += count) {
    const std::int64_t part = std::min(count, view.count() - begin);
    device.kernels().convert(stream, random.slice(0, part), view.slice(begin, part));
  }
  stream.synchronize();
}

Trial product(Device& device, DType dtype, std::int64_t side) {
  Trial trial;
  for (int i = 0; i < 3; ++i) {
    trial.arrays.push_back(device.allocate(side * side, dtype, MemoryClass::other, "limits"));
  }
  const LinearShape shape{.rows = side, .in = side, .out = side, .dtype = dtype};
  trial.ops = make_ops(device);
  trial.ops->prepare(shape, Ops::LinearUse::forward);
  trial.ops->allocate_scratch();
  const std::array<View, 3> views{trial.arrays[0].view(), trial.arrays[1].view(),
                                  trial.arrays[2].view()};
  fill(device, views[0]);
  fill(device, views[1]);
  trial.submit = [ops = trial.ops.get(), shape, views] {
    ops->linear_forward(shape, views[0], views[1], View(), views[2]);
  };
  return trial;
}

Trial copy(Device& device, std::int64_t count) {
  Trial trial;
  for (int i = 0; i < 2; ++i) {
    trial.arrays.push_back(device.allocate(count, DType::fp32, MemoryClass::other, "limits"));
  }
  const View from = trial.arrays[0].view();
  fill(device, from);
  trial.submit = [&device, from, to = trial.arrays[1].view()] {
    device.kernels().convert(device.compute(), from, to);
  };
  return trial;
}

/// Nothing if the device lacks room for the trial.
std::optional<Trial> if_there_is_room(const std::function<Trial()>& make) {
  try {
    return make();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Median seconds on the device's clock, after a warm-up call.
double seconds_of(const Trial& trial, Stream& stream) {
  give_sign_of_life();  // others wait for the profile of the first rank
  std::vector<std::pair<Mark, Mark>> marks;
  trial.submit();
  for (int sample = 0; sample < kSamples; ++sample) {
    const Mark begin = stream.mark();
    trial.submit();
    marks.emplace_back(begin, stream.mark());
  }
  stream.synchronize();
  std::vector<double> seconds;
  for (const auto& [begin, end] : marks) seconds.push_back(end.seconds_since(begin).value());
  return median(std::move(seconds));
}

}  // namespace

MemoryProbe::MemoryProbe(int threads)
    : threads_(threads), device_(cpu::open({.threads = threads})) {
  for (Buffer* buffer : {&a_, &b_, &c_}) {
    *buffer = device_->allocate(array_bytes() / 4, DType::fp32, MemoryClass::other, "probe");
    device_->kernels().zero(device_->compute(), buffer->view());
  }
}

template <typename Body>
double MemoryProbe::over(const Body& body) const {
  give_sign_of_life();
  const auto start = std::chrono::steady_clock::now();
  cpu::parallel_for(threads_, array_bytes() / 4, kGrain,
                    [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
  return seconds_since(start);
}

void MemoryProbe::pass() {
  const double copy = over([&](std::int64_t begin, std::int64_t count) {
    const View to = a_.slice(begin, count);
    std::memcpy(to.data(), b_.slice(begin, count).data(), static_cast<std::size_t>(to.bytes()));
  });
  const double triad = over([&](std::int64_t begin, std::int64_t count) {
    add_scaled(a_.slice(begin, count).as<float>(), b_.slice(begin, count).as<float>(),
               c_.slice(begin, count).as<float>());
  });
  const double read = over([&](std::int64_t begin, std::int64_t count) {
    const View words = b_.slice(begin, count);
    sink_ += sum_of_words(
        {static_cast<const std::uint64_t*>(words.data()), static_cast<std::size_t>(count / 2)});
  });
  if (!std::exchange(warm_, true)) return;
  seconds_.copy.push_back(copy);
  seconds_.triad.push_back(triad);
  seconds_.read.push_back(read);
}

std::int64_t MemoryProbe::array_bytes() {
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::clamp<std::int64_t>(memory / 24, 16 << 20, 256 << 20) / 64 * 64;
}

double MemoryProbe::rate() const {
  if (seconds_.copy.empty()) return 0;
  const auto bytes = static_cast<double>(array_bytes());
  return std::max({2 * bytes / median(seconds_.copy), 3 * bytes / median(seconds_.triad),
                   bytes / median(seconds_.read)});
}

MachineLimits measure_limits(DType dtype, int threads) {
  MemoryProbe memory(threads);
  memory.pass();
  for (int i = 0; i < kSamples; ++i) memory.pass();
  multiply_add_rate(dtype, threads);
  std::vector<double> products(kSamples);
  for (double& sample : products) sample = multiply_add_rate(dtype, threads);
  return {.products = median(std::move(products)), .memory = memory.rate()};
}

MachineLimits measure_limits(DType dtype, Device& device) {
  MachineLimits limits;
  Stream& stream = device.compute();
  double seconds = 0;
  for (std::int64_t side = kFirstSide; side <= kLastSide && seconds < kProductSeconds; side *= 2) {
    const auto trial = if_there_is_room([&] { return product(device, dtype, side); });
    if (!trial) break;
    seconds = seconds_of(*trial, stream);
    const auto n = static_cast<double>(side);
    limits.products = std::max(limits.products, 2 * n * n * n / seconds);
  }
  seconds = 0;
  for (std::int64_t count = kFirstCopy; count <= kLastCopy && seconds < kCopySeconds; count *= 2) {
    const auto trial = if_there_is_room([&] { return copy(device, count); });
    if (!trial) break;
    seconds = seconds_of(*trial, stream);
    limits.memory = 2 * 4 * static_cast<double>(count) / seconds;
  }
  return limits;
}

void random_floats(std::int64_t begin, std::span<float> out) {
  auto state = static_cast<std::uint32_t>(begin) * 2654435761U + 1;
  for (float& value : out) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  }
}

}  // namespace zero
