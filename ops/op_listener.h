// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "device/view.h"

namespace zero {

/// The minimum work of one call of an operation: its arithmetic, and the unavoidable reads and
/// writes of each operand.
struct OpCost {
  std::string name;  ///< with the sizes of a product: "linear_forward 768x2304"
  double flop = 0;   ///< of its matrix products; 0 if it has none
  double bytes = 0;
};

/// The use that a piece of work makes of the values in some memory.
enum class Access : std::uint8_t {
  read,
  write,   ///< all of them are replaced; none is read
  update,  ///< read and replaced
};

/// Is notified of each operation when it is called, on the calling host thread. A listener that
/// does not ask where values lie leaves out touches(), copies() and moves().
class OpListener {
 public:
  virtual ~OpListener() = default;
  /// Work submitted until end() belongs to the operation.
  virtual void begin(const OpCost& cost) = 0;
  virtual void end() noexcept = 0;
  /// Work submitted next on the compute stream uses `values`: between begin() and end() an operand
  /// of that operation, else work that is no operation. Of one operation reads come before writes.
  virtual void touches(const View& /*values*/, Access /*access*/) {}
  /// Work submitted next on the compute stream, which is no operation, writes `to` from `from`.
  virtual void copies(const View& /*from*/, const View& /*to*/) {}
  /// Work submitted next on another stream writes `to` from `from`, which must stay as it is until
  /// `to` is used.
  virtual void moves(const View& /*from*/, const View& /*to*/) {}
};

}  // namespace zero
