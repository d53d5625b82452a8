// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/matrix_roles.h"

namespace zero {

std::string_view name_of(MatrixRole role) {
  constexpr std::array<std::string_view, kMatrixRoles.size()> kNames = {
      "embedding", "head", "qkv", "projection", "hidden", "output"};
  return kNames.at(static_cast<std::size_t>(role));
}

std::string MatrixRoles::text() const {
  std::string all;
  for (const MatrixRole role : kMatrixRoles) {
    if (!has(role)) continue;
    if (!all.empty()) all += ", ";
    all += name_of(role);
  }
  return all.empty() ? "none" : all;
}

}  // namespace zero
