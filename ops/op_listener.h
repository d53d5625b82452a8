// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero {

/// The minimum work of one call of an operation: its arithmetic, and the unavoidable reads and
/// writes of each operand.
struct OpCost {
  std::string name;  ///< with the sizes of a product: "linear_forward 768x2304"
  double flop = 0;   ///< of its matrix products; 0 if it has none
  double bytes = 0;
};

/// Is notified of each operation when it is called, on the calling host thread.
class OpListener {
 public:
  virtual ~OpListener() = default;
  /// Work submitted until end() belongs to the operation.
  virtual void begin(const OpCost& cost) = 0;
  virtual void end() noexcept = 0;
};

}  // namespace zero
