// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/machine_limits.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "launch/telemetry/memory_probe.h"
#include "model/ops.h"

namespace zero {
namespace {

constexpr int kSamples = 5;
// A product or a copy that takes so long keeps a device busy, and a copy's arrays are beyond any
// cache; no larger one is tried.
constexpr double kProductSeconds = 1e-3;
constexpr double kCopySeconds = 1e-4;
constexpr std::int64_t kFirstSide = 64;
constexpr std::int64_t kLastSide = 8192;
constexpr std::int64_t kFirstCopy = std::int64_t{1} << 18;  // elements
constexpr std::int64_t kLastCopy = std::int64_t{1} << 28;
constexpr std::int64_t kRandom = std::int64_t{1} << 20;

/// Arrays of a device, and work on them.
struct Trial {
  std::vector<Buffer> arrays{};
  std::unique_ptr<Ops> ops{};
  std::function<void()> submit{};
};

/// Zeros would take less power than what training multiplies, and the clock would show it.
void fill(Device& device, View view) {
  const std::int64_t count = std::min(kRandom, view.count());
  const Buffer random = device.allocate(count, DType::fp32, MemoryClass::other, "limits");
  Stream& stream = device.compute();
  device.kernels().generate(stream, random.view(), [](std::int64_t begin, std::span<float> out) {
    auto state = static_cast<std::uint32_t>(begin) * 2654435761U + 1;
    for (float& value : out) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    }
  });
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

/// Nothing if the device has no room for it.
std::optional<Trial> if_there_is_room(const std::function<Trial()>& make) {
  try {
    return make();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Median seconds by the device's clock, after a call that warms up.
double seconds_of(const Trial& trial, Stream& stream) {
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
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

MachineLimits measure_limits(DType dtype, int threads) {
  MemoryProbe memory(threads);
  memory.pass();
  for (int i = 0; i < kSamples; ++i) memory.pass();
  multiply_add_rate(dtype, threads);
  std::array<double, kSamples> products{};
  for (double& sample : products) sample = multiply_add_rate(dtype, threads);
  std::ranges::sort(products);
  return {.products = products[kSamples / 2], .memory = memory.rate()};
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

}  // namespace zero
