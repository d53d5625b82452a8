// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

#include "base/error.h"
#include "base/half.h"

namespace zero {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::string_view long_name;
  std::int64_t size;
  bool floating;
};

constexpr std::array<DTypeFacts, 8> kFacts{{{"fp32", "float32", 4, true},
                                            {"bf16", "bfloat16", 2, true},
                                            {"fp16", "float16", 2, true},
                                            {"fp64", "float64", 8, true},
                                            {"i32", "int32", 4, false},
                                            {"i64", "int64", 8, false},
                                            {"u8", "uint8", 1, false},
                                            {"u16", "uint16", 2, false}}};

const DTypeFacts& facts(DType dtype) { return kFacts.at(static_cast<std::size_t>(dtype)); }

}  // namespace

float to_float(float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal: exact in fp32
  return sign != 0 ? -magnitude : magnitude;
}

float16 to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  if (magnitude >= 0x477ff000U)
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // rounds past 65504
  if (magnitude < 0x38800000U) {  // subnormal or zero: an fp32 addition rounds at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)))};
}

std::int64_t size_of(DType dtype) { return facts(dtype).size; }
std::string_view name_of(DType dtype) { return facts(dtype).name; }
bool is_floating(DType dtype) { return facts(dtype).floating; }

DType dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kFacts.size(); ++i) {
    if (name == kFacts[i].name || name == kFacts[i].long_name) return static_cast<DType>(i);
  }
  fail("unknown dtype \"{}\"; expected one of fp32, bf16, fp16, fp64, i32, i64, u8, u16", name);
}

}  // namespace zero
