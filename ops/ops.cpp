// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

#include "base/error.h"

namespace zero {

void Ops::allocate_scratch() {
  scratch_ = Buffer();
  scratch_ = device_.allocate(scratch_bytes(), DType::u8, MemoryClass::activations, "scratch");
}

void* Ops::scratch(std::string_view what, std::int64_t bytes) const {
  ZERO_CHECK(bytes <= scratch_.view().bytes(),
             "{}: needs {} bytes of scratch, {} are allocated; prepare() its shape before "
             "allocate_scratch()",
             what, bytes, scratch_.view().bytes());
  return scratch_.view().data();
}

}  // namespace zero
