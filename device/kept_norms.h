// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/kernels.h"

namespace zero {

/// Kernels that sum the norms of reductions on the device until flush_norms(), so that many
/// reductions take one copy to the host.
class KeptNorms {
 public:
  /// The side of `kernels` that keeps norms; null: its reductions add to them as they run.
  static KeptNorms* of(Kernels& kernels) { return dynamic_cast<KeptNorms*>(&kernels); }

  KeptNorms() = default;
  KeptNorms(const KeptNorms&) = delete;
  KeptNorms& operator=(const KeptNorms&) = delete;

  /// From now on what reductions are to add to `norm` may stay on the device until flush_norms().
  virtual void let_stay(const std::shared_ptr<ExactSum>& norm) = 0;
  /// Later work of `stream` finds in the norms all that reductions of this stream were to add.
  virtual void flush_norms(Stream& stream) = 0;

 protected:
  ~KeptNorms() = default;
};

}  // namespace zero
