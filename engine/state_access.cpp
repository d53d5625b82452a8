// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_access.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "device/cpu/primitives.h"

namespace zero {
namespace {

/// Widens to fp32, in host memory, the values that fill the end of `to` in their own dtype. The
/// first n values in fp32 end before the bytes of the values behind the n-th begin, so chunks in
/// order overwrite no value that is still to be read.
void widen_in_place(const View& values, const View& to) {
  std::array<std::byte, 4096> memory{};
  const std::int64_t length = std::ssize(memory) / size_of(values.dtype());
  for (std::int64_t begin = 0; begin < to.count(); begin += length) {
    const View from = values.slice(begin, std::min(length, to.count() - begin));
    std::memcpy(memory.data(), from.data(), static_cast<std::size_t>(from.bytes()));
    cpu::convert({memory.data(), from.count(), from.dtype(), nullptr},
                 to.slice(begin, from.count()), 1);
  }
}

}  // namespace

void StateAccess::set(const View& to, const View& values) {
  if (to.dtype() == values.dtype()) return device_.kernels().convert(device_.compute(), values, to);
  write(to, [&](std::int64_t at, const View& piece) {
    cpu::convert(values.slice(at, piece.count()), piece, device_.threads());
  });
}

/// A kernel converts within the memory of the device only, so host memory gets other dtypes
/// unchanged, and is widened on the host.
void StateAccess::copy(const View& from, const View& to, Stream& stream) {
  Kernels& kernels = device_.kernels();
  if (from.dtype() == to.dtype() || to.device() != nullptr)
    return kernels.convert(stream, from, to);
  const std::int64_t most = to.bytes() / size_of(from.dtype());
  const View end = to.reinterpret(from.dtype(), most).slice(most - from.count(), from.count());
  kernels.convert(stream, from, end);
  stream.submit_host("values to fp32", [end, to] { widen_in_place(end, to); });
}

}  // namespace zero
