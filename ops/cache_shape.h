// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/error.h"

namespace zero {

/// Positions of one head that lie together in the cache: keys, whose order is the device's own,
/// then values (kCacheChunk, head_width). Blocks of the cache are whole chunks, so that no bit
/// depends on their length.
inline constexpr std::int64_t kCacheChunk = 16;

/// How the cache holds keys and values.
enum class CacheFormat : std::uint8_t {
  plain,  ///< in the compute dtype
  int8,   ///< codes of -127 to 127, rounded half to even, times an fp32 scale of a token's key or
          ///< value of one head: its largest magnitude / 127, or NaN if an element is not finite
};
/// "dtype": plain; "int8". Throws zero::Error on any other name.
inline CacheFormat cache_format_from_name(std::string_view name) {
  if (name == "dtype") return CacheFormat::plain;
  ZERO_CHECK(name == "int8", "the cache is \"{}\"; expected dtype or int8", name);
  return CacheFormat::int8;
}
/// Its inverse.
inline std::string_view name_of(CacheFormat format) {
  return format == CacheFormat::plain ? "dtype" : "int8";
}

/// A layer's part of the key/value cache: blocks, in each the kv_heads one after another. Before
/// the codes of a chunk lie the scales of its keys, then those of its values.
struct CacheShape {
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
  std::int64_t block_tokens = kCacheChunk;  ///< a multiple of kCacheChunk
  DType dtype = DType::fp32;                ///< of q, k and v, and of a plain cache
  CacheFormat format = CacheFormat::plain;

  std::int64_t element_bytes() const { return format == CacheFormat::int8 ? 1 : size_of(dtype); }
  /// Of a chunk.
  std::int64_t scale_bytes() const {
    return format == CacheFormat::int8 ? 2 * kCacheChunk * size_of(DType::fp32) : 0;
  }
  std::int64_t chunk_bytes() const {
    return scale_bytes() + 2 * kCacheChunk * head_width * element_bytes();
  }
  std::int64_t head_bytes() const { return block_tokens / kCacheChunk * chunk_bytes(); }
  /// Bytes of a block of one layer.
  std::int64_t block_bytes() const { return checked_mul(kv_heads, head_bytes()); }
};

}  // namespace zero
