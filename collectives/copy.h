// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "device/view.h"

namespace zero {

/// to = from, unless they are the same memory; equal sizes in bytes. Synchronous, on the host.
inline void copy(View from, View to) {
  if (!to.empty() && from.data() != to.data()) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(to.bytes()));
  }
}

}  // namespace zero
