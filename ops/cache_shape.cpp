// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cache_shape.h"

#include "base/error.h"

namespace zero {

CacheFormat cache_format_from_name(std::string_view name) {
  if (name == "dtype") return CacheFormat::plain;
  ZERO_CHECK(name == "int8", "the cache is \"{}\"; expected dtype or int8", name);
  return CacheFormat::int8;
}

std::string_view name_of(CacheFormat format) {
  return format == CacheFormat::plain ? "dtype" : "int8";
}

}  // namespace zero
