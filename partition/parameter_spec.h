// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "partition/tensor_slice.h"

namespace zero {

/// Initial values of a parameter. They depend only on (seed, parameter name, logical index): every
/// stage and world starts from the same bits.
struct Init {
  enum class Kind : std::uint8_t { zeros, constant, normal, uniform };
  Kind kind = Kind::zeros;
  float a = 0;  ///< constant: value; normal: mean; uniform: lower bound
  float b = 0;  ///< normal: standard deviation; uniform: upper bound
};

namespace init {
inline Init zeros() { return {}; }
inline Init ones() { return {Init::Kind::constant, 1.0F, 0.0F}; }
inline Init constant(float value) { return {Init::Kind::constant, value, 0.0F}; }
inline Init normal(float deviation, float mean = 0.0F) {
  return {Init::Kind::normal, mean, deviation};
}
inline Init uniform(float low, float high) { return {Init::Kind::uniform, low, high}; }
}  // namespace init

/// One named tensor the user registers. Row-major. An empty shape is a scalar; a zero dimension
/// gives zero elements.
struct ParameterSpec {
  std::string name;  ///< unique within its unit; the full name is "unit.name"
  std::vector<std::int64_t> shape;
  Init init = init::zeros();
  bool trainable = true;  ///< a frozen parameter has no gradient and no optimizer states

  /// The name in files and messages if that is not "unit.name": "wpe.weight" of the unit
  /// "embedding".
  std::string full_name{};

  /// The part of the logical tensor that this rank of the tensor axis holds; `shape` is that
  /// part's. Unset: every rank of the axis holds the whole tensor, with equal values.
  std::optional<TensorSlice> slice{};

  /// Shape of the logical tensor.
  const std::vector<std::int64_t>& logical_shape() const { return slice ? slice->shape : shape; }
  /// Elements; throws zero::Error on a negative dimension or overflow.
  std::int64_t count() const;
  /// Elements of the logical tensor.
  std::int64_t logical_count() const;
  /// Calls visit for the runs that make up the local elements [begin, begin + count), in order: one
  /// of copy 0 if the parameter is not sliced.
  void for_each_run(std::int64_t begin, std::int64_t count, const TensorSlice::Visit& visit) const;
  /// The same for those of the logical elements [begin, begin + count) that this rank holds, in
  /// their order in the logical tensor.
  void for_each_run_of_logical(std::int64_t begin, std::int64_t count,
                               const TensorSlice::Visit& visit) const;
};

/// Writes elements [begin, begin + out.size()) of the initial values of the parameter `full_name`.
void initialise(const Init& init, std::uint64_t seed, std::string_view full_name,
                std::int64_t begin, std::span<float> out);

/// The same for a parameter that may be sliced: `begin` is an element of the local tensor; values
/// are those of the logical tensor.
void initialise(const ParameterSpec& spec, std::uint64_t seed, std::string_view full_name,
                std::int64_t begin, std::span<float> out);

}  // namespace zero
