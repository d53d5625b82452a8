// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "launch/rendezvous/start.h"

namespace zero::bench {

/// C (m, n) = A (m, k) * B (k, n).
struct ProbeShape {
  const char* name = "";
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  double flop() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};
/// Limits oneDNN to ZERO_MAX_CPU_ISA, as limit_cpu() limits our kernels. Call before oneDNN's first
/// product. Throws zero::Error if a variable of oneDNN's own is set too, or if oneDNN refuses. No
/// effect in a build without oneDNN.
void limit_onednn(const Environment& environment);

/// One oneDNN product on its own random operands: a measure of the machine's arithmetic units.
class ProductProbe {
 public:
  enum class Layout : std::uint8_t {
    packed,  ///< in the layout that oneDNN prefers: the limit
    plain,   ///< row-major, as in training
  };
  /// Whether oneDNN multiplies `dtype` on this machine; false in a build without oneDNN.
  static bool available(DType dtype);
  /// Throws zero::Error unless available(dtype).
  ProductProbe(const ProbeShape& shape, DType dtype, Layout layout, int threads);
  ~ProductProbe();
  ProductProbe(const ProductProbe&) = delete;
  ProductProbe& operator=(const ProductProbe&) = delete;

  const ProbeShape& shape() const { return shape_; }
  void run();

 private:
  struct Operands;
  ProbeShape shape_;
  [[maybe_unused]] int threads_;  // without oneDNN nothing runs
  std::unique_ptr<Operands> operands_;
};

}  // namespace zero::bench
