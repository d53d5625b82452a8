// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Tiles of stored weights as vectors of fp32, for vectors of a fixed length. Included inside
// Highway's foreach_target mechanism, once per target.

#if defined(ZERO_INFERENCE_CPU_STORED_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_INFERENCE_CPU_STORED_TILES_INL_H_
#undef ZERO_INFERENCE_CPU_STORED_TILES_INL_H_
#else
#define ZERO_INFERENCE_CPU_STORED_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "ops/cpu/packed_floats_layout-inl.h"
#include "ops/cpu/stored_tiles.h"

#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::packed::HWY_NAMESPACE {

inline constexpr std::int64_t kVectorsAcross = kTile / kLanes;

// The place of a vector of columns at a depth of a packed tile.
constexpr std::int64_t place(std::int64_t depth, std::int64_t vector) {
  return depth * kRightDown + vector * kRightAcross;
}

// Forms of stored tiles: load() gives vectors of columns, from `vector` on, at one depth of what
// open() gave. kAhead: bytes from a tile to what is fetched meanwhile: the next one, or the one
// behind it if memory is the limit. kInMemory: columns lie one behind another in memory. kZeros:
// levels are less a zero point.

/// Elements as they are stored: in the order of packed tiles, fp32 or 16 bits.
template <typename T>
struct Plain {
  static constexpr bool kScaled = false;
  static constexpr bool kZeros = false;
  static constexpr bool kInMemory = true;
  static constexpr std::int64_t kBytes = kTileElements * sizeof(T);
  static constexpr std::int64_t kAhead = sizeof(T) == 4 ? 2 * kBytes : kBytes;

  const T* open(const std::byte* tile) const { return reinterpret_cast<const T*>(tile); }
  template <std::int64_t vectors>
  HWY_INLINE void load(const T* tile, std::int64_t depth, std::int64_t vector,
                       hn::Vec<Floats> (&to)[vectors]) const {
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < vectors; ++j)
      to[j] = io::load_floats(Floats(), tile + place(depth, vector + j));
  }
};

/// Codes of 8 bits in the same order.
struct Int8 {
  static constexpr bool kScaled = true;
  static constexpr bool kZeros = false;
  static constexpr bool kInMemory = true;
  static constexpr std::int64_t kBytes = kTileElements;
  static constexpr std::int64_t kAhead = kBytes;

  const std::int8_t* open(const std::byte* tile) const {
    return reinterpret_cast<const std::int8_t*>(tile);
  }
  template <std::int64_t vectors>
  HWY_INLINE void load(const std::int8_t* tile, std::int64_t depth, std::int64_t vector,
                       hn::Vec<Floats> (&to)[vectors]) const {
    const hn::RebindToSigned<Floats> d32;
    const hn::Rebind<std::int8_t, Floats> d8;
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < vectors; ++j) {
      const auto codes = hn::LoadU(d8, tile + place(depth, vector + j));
      to[j] = hn::ConvertTo(Floats(), hn::PromoteTo(d32, codes));
    }
  }
  static HWY_INLINE hn::Vec<Floats> scale(const ColumnScales& scales, std::int64_t /*group*/,
                                          std::int64_t column) {
    return hn::LoadU(Floats(), scales.of_int8() + column);
  }
};

/// The scales of codes of 4 bits.
template <WeightFormat format>
HWY_INLINE hn::Vec<Floats> scale_of_bits(const ColumnScales& scales, std::int64_t group,
                                         std::int64_t column) {
  const Floats d;
  if constexpr (scale_bytes(format) == 2) {
    return io::load_floats(d, scales.of_fp16(group) + column);
  } else {
    const hn::RebindToSigned<Floats> d32;
    const hn::Rebind<std::uint8_t, Floats> d8;
    const ScaleRange& range = scales.range(group);
    const auto code = hn::LoadU(d8, scales.of_nf4(group) + column);
    return hn::Add(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, code)), hn::Set(d, range.step)),
                   hn::Set(d, range.least));
  }
}

/// The zero points of codes of 4 bits times their scales, without rounding: 4 bits times 11.
HWY_INLINE hn::Vec<Floats> scaled_zeros(const ColumnScales& scales, std::int64_t group,
                                        std::int64_t column) {
  const Floats d;
  const hn::RebindToSigned<Floats> d32;
  const hn::Rebind<std::uint8_t, Floats> d8;
  const auto zeros = hn::PromoteTo(d32, hn::LoadU(d8, scales.zeros(group) + column));
  return hn::Mul(hn::ConvertTo(d, zeros), scale_of_bits<WeightFormat::u4>(scales, group, column));
}

/// The scales of a vector of columns in a group.
template <class Stored>
struct VectorScales {
  hn::Vec<Floats> scale{};
  hn::Vec<Floats> zero{};  // times the scale

  HWY_INLINE VectorScales() = default;
  HWY_INLINE VectorScales(const ColumnScales& scales, std::int64_t group, std::int64_t column)
      : scale(Stored::scale(scales, group, column)) {
    if constexpr (Stored::kZeros) zero = scaled_zeros(scales, group, column);
  }
  /// Values of levels. Those of u4 are exact: level and zero have 4 bits, the scale 11.
  HWY_INLINE hn::Vec<Floats> times(hn::Vec<Floats> levels) const {
    if constexpr (Stored::kZeros) return hn::MulSub(levels, scale, zero);
    return hn::Mul(levels, scale);
  }
};

#if HWY_TARGET <= HWY_AVX3

/// Codes of 4 bits by rows of depth: a vector holds all levels, among which one instruction chooses
/// by the lowest 4 bits of each lane.
template <WeightFormat format>
class FourBits {
 public:
  static constexpr bool kScaled = true;
  static constexpr bool kZeros = format == WeightFormat::u4;
  static constexpr bool kInMemory = true;
  static constexpr bool kLooksUpTiles = false;
  static constexpr std::int64_t kBytes = kTileElements / 2;
  static constexpr std::int64_t kAhead = kBytes;

  FourBits() {
    for (std::size_t i = 0; i < 16; ++i) levels_[i] = to_float(code_levels(format)[i]);
  }
  const std::uint8_t* open(const std::byte* tile) const {
    return reinterpret_cast<const std::uint8_t*>(tile);
  }
  template <std::int64_t vectors>
  HWY_INLINE void load(const std::uint8_t* tile, std::int64_t depth, std::int64_t /*first*/,
                       hn::Vec<Floats> (&to)[vectors]) const {
    static_assert(vectors == 2, "one of the low halves of bytes, one of the high halves");
    const hn::RebindToUnsigned<Floats> d32;
    const hn::Rebind<std::uint8_t, Floats> d8;
    const auto codes = hn::PromoteTo(d32, hn::LoadU(d8, tile + depth * kLanes));
    const __m512 levels = hn::Load(Floats(), levels_.data()).raw;
    to[0].raw = _mm512_permutexvar_ps(codes.raw, levels);
    to[1].raw = _mm512_permutexvar_ps(hn::ShiftRight<4>(codes).raw, levels);
  }
  static HWY_INLINE hn::Vec<Floats> scale(const ColumnScales& scales, std::int64_t group,
                                          std::int64_t column) {
    return scale_of_bits<format>(scales, group, column);
  }

 private:
  alignas(64) std::array<float, 16> levels_{};
};

#else

/// Codes of 4 bits by rows of depth: a tile's levels are looked up before its products.
template <WeightFormat format>
class FourBits {
 public:
  static constexpr bool kScaled = true;
  static constexpr bool kZeros = format == WeightFormat::u4;
  static constexpr bool kInMemory = true;
  static constexpr bool kLooksUpTiles = true;
  static constexpr std::int64_t kBytes = kTileElements / 2;
  static constexpr std::int64_t kAhead = kBytes;

  FourBits() {
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint16_t bits = code_levels(format)[i].bits;
      low_[i] = static_cast<std::uint8_t>(bits & 255U);
      high_[i] = static_cast<std::uint8_t>(bits >> 8U);
    }
  }
  const bfloat16* open(const std::byte* tile) {
    look_up(tile, levels_.data());
    return reinterpret_cast<const bfloat16*>(levels_.data());
  }
  /// Writes the levels of a tile to their places in a packed one.
  void look_up(const std::byte* tile, std::uint16_t* to) const {
    const hn::FixedTag<std::uint8_t, 16> d8;
    const hn::FixedTag<std::uint16_t, 8> d16;
    const auto low = hn::Load(d8, low_.data());
    const auto high = hn::Load(d8, high_.data());
    const auto nibble = hn::Set(d8, 15);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(tile);
    for (std::int64_t depth = 0; depth < kTile; ++depth, codes += 16, to += kDown) {
      const auto both = hn::LoadU(d8, codes);
      const auto put = [&](auto code, std::int64_t column) HWY_ATTR {
        const auto first = hn::TableLookupBytes(low, code);
        const auto second = hn::TableLookupBytes(high, code);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d8, first, second)), d16,
                   to + column / kLookupWidth * kAcross);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d8, first, second)), d16,
                   to + (column / kLookupWidth + 1) * kAcross);
      };
      put(hn::And(both, nibble), 0);
      put(hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, both))), nibble), kTile / 2);
    }
  }
  template <std::int64_t vectors>
  HWY_INLINE void load(const bfloat16* tile, std::int64_t depth, std::int64_t vector,
                       hn::Vec<Floats> (&to)[vectors]) const {
    Plain<bfloat16>().load(tile, depth, vector, to);
  }
  static HWY_INLINE hn::Vec<Floats> scale(const ColumnScales& scales, std::int64_t group,
                                          std::int64_t column) {
    return scale_of_bits<format>(scales, group, column);
  }

 private:
  // Places of eight neighbouring columns at one depth.
  static constexpr std::int64_t kLookupWidth = 8;
  static constexpr std::int64_t kDown = kByVectors ? kRightDown : kTile;
  static constexpr std::int64_t kAcross = kByVectors ? kRightAcross : kLookupWidth;

  alignas(64) std::array<std::uint8_t, 16> low_{};
  alignas(64) std::array<std::uint8_t, 16> high_{};
  alignas(64) std::array<std::uint16_t, kTileElements> levels_{};
};

#endif

/// Levels that were looked up before.
template <WeightFormat format>
struct LookedUp : FourBits<format> {
  static constexpr bool kInMemory = false;
  static constexpr std::int64_t kBytes = kTileElements * 2;
  static constexpr std::int64_t kAhead = kBytes;
  const bfloat16* open(const std::byte* tile) const {
    return reinterpret_cast<const bfloat16*>(tile);
  }
};

}  // namespace zero::cpu::packed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#endif  // ZERO_INFERENCE_CPU_STORED_TILES_INL_H_
