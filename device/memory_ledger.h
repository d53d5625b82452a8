// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
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
inline std::int64_t& at(BytesByClass& bytes, MemoryClass c) {
  return bytes[static_cast<std::size_t>(c)];
}
inline std::int64_t at(const BytesByClass& bytes, MemoryClass c) {
  return bytes[static_cast<std::size_t>(c)];
}
std::int64_t sum_of(const BytesByClass& bytes);
/// "parameters 512, optimizer 1024": the classes with bytes, or "nothing"; for messages.
std::string listed(const BytesByClass& bytes);

/// The peak memory of the buffers of a device with MemorySpace::device: requested bytes, alignment
/// and gaps between buffers. All zero on devices in host memory.
struct DeviceBytes {
  /// The GPU driver allocates memory in pages of this size.
  static constexpr std::int64_t kPage = std::int64_t{2} << 20;

  BytesByClass arenas{};     ///< of each class's block (ArenaLayout)
  std::int64_t adopted = 0;  ///< Device::adopt(), outside the blocks, in whole pages

  /// The total, with each block in whole pages.
  std::int64_t in_pages() const;
  friend bool operator==(const DeviceBytes&, const DeviceBytes&) = default;
};

/// Bytes at one moment, per class and of all classes together. Classes peak at different times: the
/// sum of `peak` may exceed `peak_total`.
struct MemorySnapshot {
  BytesByClass current{};
  BytesByClass peak{};
  std::map<std::string, std::int64_t> labels;  ///< current bytes per "class/label"
  std::int64_t total = 0;                      ///< of all classes
  std::int64_t peak_total = 0;                 ///< the largest `total` so far
  std::int64_t recent_peak = 0;                ///< the largest `total` since the last begin_peak()

  std::int64_t current_of(MemoryClass c) const { return at(current, c); }
  std::int64_t peak_of(MemoryClass c) const { return at(peak, c); }
};

/// A charge or a release.
struct MemoryEvent {
  MemoryClass memory_class = MemoryClass::other;
  std::string_view label;  ///< valid during the call
  std::int64_t bytes = 0;  ///< negative: released
  std::int64_t total = 0;  ///< of all classes, this event included
};

/// Accounts for every byte of one device: current and peak per class and of their sum, current per
/// label. Bytes are as requested, before the allocator's rounding. Thread-safe.
class MemoryLedger {
 public:
  using Observer = std::function<void(const MemoryEvent&)>;

  void charge(MemoryClass memory_class, std::string_view label, std::int64_t bytes);
  void release(MemoryClass memory_class, std::string_view label, std::int64_t bytes) noexcept;

  MemorySnapshot snapshot() const;
  /// The number of buffers ever allocated: constant while a run allocates nothing.
  std::int64_t allocations() const;

  /// Begins a new recent peak, at the bytes of this moment.
  void begin_peak();
  /// Calls `observer` for each later charge and release of any thread, one at a time, in their
  /// order. The ledger is locked meanwhile: the observer must not call it, allocate from its device
  /// or throw. Replaces the observer before it; an empty one ends the calls. On return no call of
  /// the replaced observer runs.
  void observe(Observer observer);

 private:
  mutable std::mutex mutex_;
  MemorySnapshot now_;
  std::int64_t allocations_ = 0;
  Observer observer_;
};

/// A class and the label of buffers of it.
struct MemoryLabel {
  MemoryClass memory_class = MemoryClass::other;
  std::string name{};
  auto operator<=>(const MemoryLabel&) const = default;

  /// "optimizer/h.0.master", as MemorySnapshot::labels has it.
  std::string key() const;
  /// Of a key; what begins with no class is of `other`.
  static MemoryLabel of_key(std::string_view key);
};

/// By key.
using BytesByLabel = std::map<std::string, std::int64_t>;

/// The class of that name.
std::optional<MemoryClass> memory_class_from_name(std::string_view name);

}  // namespace zero
