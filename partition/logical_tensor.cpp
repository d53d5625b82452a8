// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/logical_tensor.h"

namespace zero {

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::parameter:
      return "parameter";
    case StateKind::moment0:
      return "moment0";
    case StateKind::moment1:
      return "moment1";
    case StateKind::gradient:
      break;
  }
  return "gradient";
}

}  // namespace zero
