// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/weight_shape.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace zero {
namespace {

constexpr std::array<std::pair<WeightFormat, std::string_view>, 5> kNames{
    {{WeightFormat::plain, "dtype"},
     {WeightFormat::int8, "int8"},
     {WeightFormat::nf4, "nf4"},
     {WeightFormat::q4, "q4"},
     {WeightFormat::u4, "u4"}}};

}  // namespace

WeightFormat weight_format_from_name(std::string_view name) {
  for (const auto& [format, known] : kNames) {
    if (name == known) return format;
  }
  fail("weights are \"{}\"; expected dtype, int8, nf4 or q4", name);
}

void check_format_on_gpu(WeightFormat format, std::string_view device) {
  ZERO_CHECK(
      format != WeightFormat::u4,
      "weights on {}: found u4, codes of a GPTQ or AWQ folder, expected plain weights, "
      "int8, nf4 or q4: codes with zero points are multiplied on CPUs; take --device cpu, or "
      "the folder from which these were made and --weights q4 or nf4",
      device);
}

std::string_view name_of(WeightFormat format) {
  return kNames.at(static_cast<std::size_t>(format)).second;
}

}  // namespace zero
