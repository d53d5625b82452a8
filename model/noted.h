// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero {

/// Operations, or a model of them, that may have something to say of how a device computes them: a
/// library that refused a shape.
class Noted {
 public:
  /// One sentence for the user; empty: nothing. Of operations, behind Ops::prepare().
  virtual std::string note() const = 0;

  Noted() = default;
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 protected:
  ~Noted() = default;
};

}  // namespace zero
