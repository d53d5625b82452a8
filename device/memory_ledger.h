// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace zero {

/// The purpose of a byte of device memory. Every Buffer is charged to one class.
enum class MemoryClass : std::uint8_t {
  parameters,     ///< compute copies kept between steps (whole or shards)
  gathered,       ///< windows of full parameters and full gradients of units in flight
  gradients,      ///< gradients kept until the step, and partial sums of accumulation
  optimizer,      ///< fp32 master copies and moments
  activations,    ///< kept by forward for backward, and scratch of the layers
  communication,  ///< receive slices of reductions, staging of other collectives
  staging,        ///< host staging: files, data batches
  other,
};
inline constexpr int kMemoryClasses = 8;

/// "parameters", "gathered", ...: the names used in logs, plans and messages.
std::string_view name_of(MemoryClass memory_class);
/// All classes, in declaration order.
std::array<MemoryClass, kMemoryClasses> all_memory_classes();

/// Bytes of each class, in declaration order.
using BytesByClass = std::array<std::int64_t, kMemoryClasses>;
/// "parameters 512, optimizer 1024": the classes with bytes, or "nothing"; for messages.
std::string listed(const BytesByClass& bytes);

/// Bytes per class at one moment.
struct MemorySnapshot {
  BytesByClass current{};
  BytesByClass peak{};
  std::map<std::string, std::int64_t> labels;  ///< current bytes per "class/label"

  std::int64_t current_of(MemoryClass c) const { return current[static_cast<std::size_t>(c)]; }
  std::int64_t peak_of(MemoryClass c) const { return peak[static_cast<std::size_t>(c)]; }
};

/// Accounts for every byte of one device: current and peak per class, current per label. Bytes are
/// as requested, before the allocator's rounding. Thread-safe.
class MemoryLedger {
 public:
  void charge(MemoryClass memory_class, std::string_view label, std::int64_t bytes);
  void release(MemoryClass memory_class, std::string_view label, std::int64_t bytes) noexcept;

  MemorySnapshot snapshot() const;
  /// The number of buffers ever allocated: constant while a run allocates nothing.
  std::int64_t allocations() const;

 private:
  mutable std::mutex mutex_;
  MemorySnapshot now_;
  std::int64_t allocations_ = 0;
};

}  // namespace zero
