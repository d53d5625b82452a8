// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/half.h"

namespace zero {

/// Element types of tensors. The names are those of configuration files and messages.
enum class DType : std::uint8_t { fp32, bf16, fp16, fp64, i32, i64, u8, u16 };

/// Bytes of one element.
std::int64_t size_of(DType dtype);
/// "fp32", "bf16", ...
std::string_view name_of(DType dtype);
/// The inverse of name_of; also accepts "float32", "bfloat16", "float16". Throws zero::Error on
/// any other name.
DType dtype_from_name(std::string_view name);
/// True for fp32, bf16, fp16, fp64.
bool is_floating(DType dtype);

/// The DType of a C++ element type: dtype_of<float> == DType::fp32.
template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type");
  return DType::fp32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::fp32;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float16> = DType::fp16;
template <>
inline constexpr DType dtype_of<double> = DType::fp64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::u16;

}  // namespace zero
