// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "device/memory_ledger.h"
#include "device/view.h"

namespace zero {

/// Owns one allocation of a device (or of a communicator, for registered memory) and its charge in
/// the ledger. Move-only. Destruction frees the memory and never throws; no stream may be using it.
class Buffer {
 public:
  using Free = std::function<void(void*)>;

  Buffer() = default;
  /// Takes ownership of `data`; charges the ledger of `device` until destruction.
  Buffer(View view, MemoryClass memory_class, std::string label, MemoryLedger& ledger, Free free);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  const View& view() const { return view_; }
  View slice(std::int64_t begin, std::int64_t count) const { return view_.slice(begin, count); }
  bool empty() const { return view_.empty(); }

 private:
  void reset() noexcept;

  View view_;
  MemoryClass memory_class_ = MemoryClass::other;
  std::string label_;
  MemoryLedger* ledger_ = nullptr;
  Free free_;
};

}  // namespace zero
