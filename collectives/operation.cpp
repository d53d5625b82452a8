// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation.h"

#include <fmt/format.h>

#include <array>

namespace zero {

std::string_view name_of(Operation operation) {
  constexpr std::array<std::string_view, kOperations> kNames{
      "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "barrier"};
  return kNames.at(static_cast<std::size_t>(operation));
}

std::string call_name(Operation operation, std::string_view purpose) {
  return fmt::format("{}({})", name_of(operation), purpose);
}

std::string call_name(int rank, Operation operation, std::string_view purpose) {
  return fmt::format("[rank {}] {}({})", rank, name_of(operation), purpose);
}

}  // namespace zero
