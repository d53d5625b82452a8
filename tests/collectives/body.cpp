// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/body.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>

namespace zero::test {
namespace {

double element(View view, std::int64_t i) {
  const auto at = [&]<typename T>(T) { return static_cast<const T*>(view.data())[i]; };
  switch (view.dtype()) {
    case DType::fp32:
      return at(float{});
    case DType::bf16:
      return to_float(at(bfloat16{}));
    case DType::fp16:
      return to_float(at(float16{}));
    case DType::fp64:
      return at(double{});
    case DType::i32:
      return at(std::int32_t{});
    case DType::i64:
      return static_cast<double>(at(std::int64_t{}));
    case DType::u8:
      return at(std::uint8_t{});
    case DType::u16:
      return at(std::uint16_t{});
  }
  return 0;
}

void put(View view, std::int64_t i, double value) {
  const auto set = [&]<typename T>(T element) { static_cast<T*>(view.data())[i] = element; };
  switch (view.dtype()) {
    case DType::fp32:
      return set(static_cast<float>(value));
    case DType::bf16:
      return set(to_bfloat16(static_cast<float>(value)));
    case DType::fp16:
      return set(to_float16(static_cast<float>(value)));
    case DType::fp64:
      return set(value);
    case DType::i32:
      return set(static_cast<std::int32_t>(value));
    case DType::i64:
      return set(static_cast<std::int64_t>(value));
    default:
      fail("values of {} are filled by bytes", name_of(view.dtype()));
  }
}

}  // namespace

void expect(bool holds, const std::string& what) { ZERO_CHECK(holds, "{}", what); }

Buffer Rank::allocate(std::int64_t count, DType dtype) const {
  return comm.allocate(device_, count, dtype, MemoryClass::other, "test");
}

SharedBuffer Rank::allocate_shared(std::int64_t count, DType dtype) const {
  return comm.allocate_shared(device_, count, dtype, MemoryClass::other, "test");
}

/// Gives a view of the device what `fill` writes to host memory. A GPU may read that memory, which
/// is pageable, when the copy is submitted.
void Rank::copy_in(View view, const std::function<void(View)>& fill) const {
  if (view.empty()) return;
  Stream& compute = device_.compute();
  const auto memory =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(view.bytes()));
  const View host(memory->data(), view.count(), view.dtype(), nullptr);
  fill(host);
  device_.kernels().convert(compute, host, view);
  compute.submit_host("filled", [memory] {});  // lives until here
}

void Rank::fill_bytes(View view, std::function<std::uint8_t(std::int64_t)> pattern) const {
  copy_in(view, [pattern = std::move(pattern)](View host) {
    for (std::int64_t i = 0; i < host.bytes(); ++i) {
      static_cast<std::uint8_t*>(host.data())[i] = pattern(i);
    }
  });
}

void Rank::fill(View view, std::function<double(std::int64_t)> value) const {
  copy_in(view, [value = std::move(value)](View host) {
    for (std::int64_t i = 0; i < host.count(); ++i) put(host, i, value(i));
  });
}

void Rank::communicate(const std::function<void(Stream&)>& collective) const {
  Stream& stream = device_.communication();
  stream.wait(device_.compute().record());
  collective(stream);
  device_.compute().wait(stream.record());
}

std::vector<double> Rank::read(View view) const {
  std::vector<std::uint8_t> bytes = read_bytes(view);
  const View host(bytes.data(), view.count(), view.dtype(), nullptr);
  std::vector<double> elements;
  elements.reserve(static_cast<std::size_t>(view.count()));
  for (std::int64_t i = 0; i < view.count(); ++i) elements.push_back(element(host, i));
  return elements;
}

std::vector<std::uint8_t> Rank::read_bytes(View view) const {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(view.bytes()));
  const View host(bytes.data(), view.count(), view.dtype(), nullptr);
  if (!view.empty()) device_.kernels().convert(device_.compute(), view, host);
  device_.compute().synchronize();
  return bytes;
}

Plan plan(Cut cut, std::int64_t total, int world) {
  Plan result;
  const std::int64_t share = (total + world - 1) / world;
  if (cut == Cut::even) {
    for (int r = 0; r < world; ++r) result.ranges.push_back({r * share, share});
    result.buffer = share * world;
  } else if (cut == Cut::strided) {
    for (int r = 0; r < world; ++r) result.ranges.push_back({r * share + share / 3, share / 2});
    result.buffer = share * world;
  } else {
    constexpr std::int64_t kGap = 3;
    result.ranges.resize(static_cast<std::size_t>(world));
    for (int r = world - 1; r >= 0; --r) {  // the last rank's slice first
      const std::int64_t count = share * ((r * 5 + 3) % 4) / 3 + (r == 2 ? 1 : 0);
      result.ranges[static_cast<std::size_t>(r)] = {result.buffer + kGap, count};
      result.buffer += kGap + count;
    }
  }
  return result;
}

std::int64_t check_step(std::int64_t count) { return count > 4000 ? 37 : 1; }

double wild(int rank, std::int64_t index) {
  constexpr std::array kMagnitudes{1e4, 1.0, -1e4, 3e-3, 77.7, -1.0, 0.1, -5e3, 1e-2};
  const auto at = static_cast<std::size_t>(rank * 7 + index) % kMagnitudes.size();
  return kMagnitudes[at] * (1 + static_cast<double>((index * 31 + rank * 17) % 101) / 128);
}

double rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::bf16) return to_float(to_bfloat16(single));
  if (dtype == DType::fp16) return to_float(to_float16(single));
  return dtype == DType::fp32 ? single : value;
}

void check_everything(Communicator& communicator, Device& device, std::int64_t total) {
  const Rank rank(communicator, device);
  check_moves(rank, total);
  check_common(rank, total);
  check_reduce_scatter(rank, total);
  check_all_reduce(rank, total);
}

}  // namespace zero::test
