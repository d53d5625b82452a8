// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tiers/tier_host.h"

#include <iterator>
#include <utility>

#include "device/cpu/primitives.h"

namespace zero {
namespace {

const std::byte* first_byte(const View& view) { return static_cast<const std::byte*>(view.data()); }

}  // namespace

TierHost::~TierHost() {
  try {
    moved_.synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the stream has failed, and dropped its work
  }
}

View TierHost::reserve(std::int64_t count, DType dtype, MemoryClass memory_class,
                       std::string_view label) {
  Buffer buffer = device_.allocate_host(count, dtype, memory_class, label);
  const View view = buffer.view();
  if (view.empty()) return view;
  if (device_.has_memory()) cpu::zero(view, device_.threads());
  bytes_ += view.bytes();
  buffers_.emplace(first_byte(view), std::move(buffer));
  return view;
}

bool TierHost::holds(const View& view) const {
  const std::byte* const first = first_byte(view);
  const auto behind = buffers_.upper_bound(first);
  if (view.empty() || behind == buffers_.begin()) return false;
  const auto& [begin, buffer] = *std::prev(behind);
  return first < begin + buffer.view().bytes();
}

void TierHost::copy(const View& from, const View& to) {
  device_.kernels().convert(device_.transfer(), from, to);
  moved_ = device_.transfer().record();
}

}  // namespace zero
