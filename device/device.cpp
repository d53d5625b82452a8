// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "device/memory_ledger.h"

namespace zero {
/// One of the device's two kinds of memory.
struct Device::Source {
  std::string_view kind;
  void* (Device::*take)(std::int64_t bytes, MemoryClass memory_class);
  void (Device::*give_back)(void* data, std::int64_t bytes, MemoryClass memory_class) noexcept;
  Device* device;  // of the views
};

Buffer Device::allocate(std::int64_t count, DType dtype, MemoryClass memory_class,
                        std::string_view label) {
  return allocate_from({"", &Device::allocate_bytes, &Device::free_bytes, this}, count, dtype,
                       memory_class, label);
}

Buffer Device::allocate_host(std::int64_t count, DType dtype, MemoryClass memory_class,
                             std::string_view label) {
  return allocate_from({"host ", &Device::allocate_host_bytes, &Device::free_host_bytes, nullptr},
                       count, dtype, memory_class, label);
}

Buffer Device::allocate_from(const Source& source, std::int64_t count, DType dtype,
                             MemoryClass memory_class, std::string_view label) {
  ZERO_CHECK(count >= 0, "device {}: cannot allocate {} elements for \"{}\"", name(), count, label);
  const std::int64_t bytes = checked_mul(count, size_of(dtype));
  void* data = bytes == 0 ? nullptr : (this->*source.take)(bytes, memory_class);
  const View view(data, count, dtype, source.device);
  if (bytes == 0) return {view, memory_class, std::string(label), ledger_, nullptr};
  ZERO_CHECK(
      data != nullptr,
      "device {}: out of {}memory: {} bytes for {}/{}, while its buffers hold (bytes): {}{}{}; use "
      "more ranks, a higher stage or a smaller micro-batch",
      name(), source.kind, bytes, name_of(memory_class), label, listed(ledger_.snapshot().current),
      memory_report().empty() ? "" : "; ", memory_report());
  const std::int64_t on_host = source.device == nullptr ? bytes : 0;
  on_host_ += on_host;
  most_on_host_ = std::max(most_on_host_, on_host_);
  return {view, memory_class, std::string(label), ledger_,
          [this, bytes, on_host, memory_class, give_back = source.give_back](void* memory) {
            on_host_ -= on_host;
            (this->*give_back)(memory, bytes, memory_class);
          }};
}

Buffer Device::adopt(std::shared_ptr<void> memory, std::int64_t count, DType dtype,
                     MemoryClass memory_class, std::string_view label) {
  const std::int64_t bytes = checked_mul(count, size_of(dtype));
  ZERO_CHECK(count > 0 && (memory != nullptr || !has_memory()),
             "device {}: no memory to adopt for {} elements of \"{}\"", name(), count, label);
  void* const data = memory ? memory.get() : allocate_host_bytes(bytes, memory_class);
  const std::int64_t pages = round_up(bytes, DeviceBytes::kPage);
  adopted_ += pages;
  adopted_unused_ += pages - bytes;
  most_adopted_ = std::max(most_adopted_, adopted_);
  return {View(data, count, dtype, this), memory_class, std::string(label), ledger_,
          [this, pages, bytes, owner = std::move(memory)](void*) mutable {
            owner.reset();
            adopted_ -= pages;
            adopted_unused_ -= pages - bytes;
          }};
}

Buffer Device::name_file_range(std::int64_t bytes, MemoryClass memory_class,
                               std::string_view label) {
  // Neither x86-64 nor AArch64 lets a program map them, whatever it ignores of the upper bits; a
  // planning device's own begin behind them.
  constexpr std::int64_t kBegin = (std::int64_t{1} << 57) + (std::int64_t{1} << 55);
  constexpr std::int64_t kMost = std::int64_t{1} << 54;
  ZERO_CHECK(bytes > 0 && bytes <= kMost - named_,
             "device {}: cannot name {} bytes of a file for \"{}\"", name(), bytes, label);
  void* const address = reinterpret_cast<void*>(kBegin + named_);  // NOLINT: never followed
  const std::int64_t blocks = round_up(bytes, kFileBlock);
  named_ += blocks;
  return {View(address, blocks, DType::u8, this), memory_class, std::string(label), file_ledger_,
          nullptr};
}

std::int64_t Device::reserved_bytes() const {
  return ledger_.snapshot().total + unused_bytes() + adopted_unused_;
}

}  // namespace zero
