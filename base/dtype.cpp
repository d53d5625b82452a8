// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

#include "base/error.h"

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
