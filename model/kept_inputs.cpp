// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/kept_inputs.h"

#include "base/checked_math.h"

namespace zero {

void KeptInputs::allocate(std::int64_t count, DType dtype) {
  host_.reset();
  moved_ = {};
  if (windows_.on_host() == 0) return;
  host_.emplace(device_);
  count_ = count;
  all_ = host_->reserve(checked_mul(windows_.on_host(), count), dtype, MemoryClass::activations,
                        "kept inputs");
}

void KeptInputs::before_write(std::int64_t i) {
  if (windows_.has(i)) device_.compute().wait(moved(i), waits_);
}

void KeptInputs::leave(std::int64_t i, const View& window) {
  if (windows_.number(i) >= windows_.on_host()) return;
  const View to = home(windows_.number(i));
  if (listener_ != nullptr) listener_->moves(window, to);
  device_.transfer().wait(device_.compute().record());
  host_->write(window, to);
  moved(i) = host_->moved();
}

void KeptInputs::before_use(std::int64_t i) { before_write(i); }

void KeptInputs::used(std::int64_t i, const View& window) {
  if (windows_.number(i) < windows_.windows()) return;
  const View from = home(windows_.number(i) - windows_.windows());
  if (listener_ != nullptr) listener_->moves(from, window);
  device_.transfer().wait(device_.compute().record());
  host_->read(from, window);
  moved(i) = host_->moved();
}

}  // namespace zero
