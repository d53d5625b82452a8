// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <utility>

namespace zero {

Buffer::Buffer(View view, MemoryClass memory_class, std::string label, MemoryLedger& ledger,
               Free free)
    : view_(view),
      memory_class_(memory_class),
      label_(std::move(label)),
      ledger_(&ledger),
      free_(std::move(free)) {
  try {
    ledger.charge(memory_class_, label_, view_.bytes());
  } catch (...) {
    if (free_) free_(view_.data());
    throw;
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : view_(std::exchange(other.view_, {})),
      memory_class_(other.memory_class_),
      label_(std::move(other.label_)),
      ledger_(std::exchange(other.ledger_, nullptr)),
      free_(std::exchange(other.free_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  view_ = std::exchange(other.view_, {});
  memory_class_ = other.memory_class_;
  label_ = std::move(other.label_);
  ledger_ = std::exchange(other.ledger_, nullptr);
  free_ = std::exchange(other.free_, nullptr);
  return *this;
}

Buffer::~Buffer() { reset(); }

void Buffer::reset() noexcept {
  if (ledger_ != nullptr) ledger_->release(memory_class_, label_, view_.bytes());
  if (free_) free_(view_.data());
  ledger_ = nullptr;
  free_ = nullptr;
  view_ = {};
}

}  // namespace zero
