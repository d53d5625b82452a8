// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "bench/limits.h"
#include "bench/timing.h"
#include "device/cpu/parallel.h"
#include "device/device.h"

namespace zero::bench {
namespace {

constexpr int kRounds = 9;
constexpr std::int64_t kGrain = 1 << 16;  // elements

/// Bytes of one array: well beyond the last-level cache, within an eighth of the memory for all.
std::int64_t array_bytes() {
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::clamp<std::int64_t>(memory / 24, 16 << 20, 256 << 20) / 64 * 64;
}

Row row_of(const char* name, std::int64_t bytes, const Timing& timing) {
  const double giga = static_cast<double>(bytes) * 1e-9;
  return {.section = "limits",
          .name = name,
          .bytes = bytes,
          .dtype = "fp32",
          .value = giga / timing.median,
          .best = giga / timing.best,
          .unit = "GB/s"};
}

void triad(std::span<float> a, std::span<const float> b, std::span<const float> c) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] + 3.0F * c[i];
}

std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::array<std::uint64_t, 16> sums{};  // chains that do not wait for each other
  for (std::size_t i = 0; i + sums.size() <= words.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

}  // namespace

MemoryRates measure_memory(int threads, Report& report) {
  const auto device = cpu::open({.threads = threads});
  const std::int64_t count = array_bytes() / 4;
  const Buffer a = device->allocate(count, DType::fp32, MemoryClass::other, "a");
  const Buffer b = device->allocate(count, DType::fp32, MemoryClass::other, "b");
  const Buffer c = device->allocate(count, DType::fp32, MemoryClass::other, "c");
  for (const Buffer* buffer : {&a, &b, &c}) {
    device->kernels().zero(device->compute(), buffer->view());
  }
  const auto over = [&](const std::function<void(std::int64_t, std::int64_t)>& body) {
    cpu::parallel_for(threads, count, kGrain, body);
  };
  std::atomic<std::uint64_t> sink = 0;  // keeps the reads alive
  const std::vector<std::function<void()>> cases{
      [&] {
        over([&](std::int64_t begin, std::int64_t end) {
          std::memcpy(a.slice(begin, end - begin).data(), b.slice(begin, end - begin).data(),
                      static_cast<std::size_t>(end - begin) * sizeof(float));
        });
      },
      [&] {
        over([&](std::int64_t begin, std::int64_t end) {
          triad(a.slice(begin, end - begin).as<float>(), b.slice(begin, end - begin).as<float>(),
                c.slice(begin, end - begin).as<float>());
        });
      },
      [&] {
        over([&](std::int64_t begin, std::int64_t end) {
          const View words = b.slice(begin, end - begin).reinterpret(DType::i64, (end - begin) / 2);
          sink += sum_of({static_cast<const std::uint64_t*>(words.data()),
                          static_cast<std::size_t>(words.count())});
        });
      }};
  const auto timings = interleaved(cases, kRounds);
  const std::int64_t bytes = count * 4;
  const Row copy = row_of("memory copy", 2 * bytes, timings[0]);
  const Row three = row_of("memory triad", 3 * bytes, timings[1]);
  const Row read = row_of("memory read", bytes, timings[2]);
  for (const Row& row : {copy, three, read}) report.add(row);
  return {.copy = copy.value, .triad = three.value, .read = read.value};
}

}  // namespace zero::bench
