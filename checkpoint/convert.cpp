// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace zero {
namespace {

template <typename To>
To from_float(float value) {
  if constexpr (std::is_same_v<To, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<To, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

template <typename From, typename To>
void decode_as(std::span<const std::byte> bytes, std::span<To> to) {
  if constexpr (std::is_same_v<From, To>) {
    if (!to.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
  } else {
    for (std::size_t i = 0; i < to.size(); ++i) {
      From value;
      std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
      to[i] = from_float<To>(to_float(value));
    }
  }
}

template <typename From>
void decode_from(std::span<const std::byte> bytes, const View& to) {
  ZERO_CHECK(bytes.size() == static_cast<std::size_t>(to.count()) * sizeof(From),
             "{} bytes of {} do not make {} elements", bytes.size(),
             name_of(file_type_of(dtype_of<From>)), to.count());
  switch (to.dtype()) {
    case DType::fp32:
      return decode_as<From>(bytes, to.as<float>());
    case DType::bf16:
      return decode_as<From>(bytes, to.as<bfloat16>());
    case DType::fp16:
      return decode_as<From>(bytes, to.as<float16>());
    default:
      fail("elements of {} cannot be made from a file; expected fp32, bf16 or fp16",
           name_of(to.dtype()));
  }
}

}  // namespace

void decode(FileType from, std::span<const std::byte> bytes, View to) {
  switch (from) {
    case FileType::f32:
      return decode_from<float>(bytes, to);
    case FileType::bf16:
      return decode_from<bfloat16>(bytes, to);
    case FileType::f16:
      return decode_from<float16>(bytes, to);
    default:
      fail("elements of {} cannot be read; expected F32, BF16 or F16", name_of(from));
  }
}

}  // namespace zero
