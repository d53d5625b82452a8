// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

/// What a matrix of a decoder computes: the tables of tokens, then those of each block, of which
/// `hidden` is the MLP's first product (gate and up, if gated) and `output` its second.
enum class MatrixRole : std::uint8_t { embedding, head, qkv, projection, hidden, output };
inline constexpr std::array kMatrixRoles = {MatrixRole::embedding, MatrixRole::head,
                                            MatrixRole::qkv,       MatrixRole::projection,
                                            MatrixRole::hidden,    MatrixRole::output};
/// "embedding", "head", "qkv", ...
inline std::string_view name_of(MatrixRole role) {
  constexpr std::array<std::string_view, kMatrixRoles.size()> kNames = {
      "embedding", "head", "qkv", "projection", "hidden", "output"};
  return kNames.at(static_cast<std::size_t>(role));
}

/// A set of roles. A value type.
class MatrixRoles {
 public:
  bool has(MatrixRole role) const { return (bits_ & bit(role)) != 0; }
  void add(MatrixRole role) { bits_ = static_cast<std::uint8_t>(bits_ | bit(role)); }
  bool empty() const { return bits_ == 0; }
  /// "embedding, head"; "none" of an empty set.
  std::string text() const {
    std::string all;
    for (const MatrixRole role : kMatrixRoles) {
      if (!has(role)) continue;
      if (!all.empty()) all += ", ";
      all += name_of(role);
    }
    return all.empty() ? "none" : all;
  }
  friend bool operator==(const MatrixRoles&, const MatrixRoles&) = default;

 private:
  static std::uint8_t bit(MatrixRole role) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(role));
  }
  std::uint8_t bits_ = 0;
};

}  // namespace zero
