// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "inference/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "inference/cpu/few_rows.h"
#include "model/cpu/packed_floats_layout-inl.h"
#include "model/cpu/packed_kernels.h"
#include "model/cpu/typed.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::packed::HWY_NAMESPACE {

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR

bool has_few_rows_any() { return false; }
void multiply_few_rows_any(const FewRows&, std::int64_t, std::int64_t, std::byte*) {}

#else

inline constexpr std::int64_t kVectorsAcross = kBlock / kLanes;
inline constexpr std::int64_t kLine = 64;  // bytes

/// Elements as they are stored: in the order of packed squares, fp32 or 16 bits.
template <typename T>
struct Plain {
  static constexpr bool kScaled = false;
  static constexpr std::int64_t kBytes = kSquareCount * sizeof(T);

  const T* open(const std::byte* square) const { return reinterpret_cast<const T*>(square); }
  static HWY_INLINE hn::Vec<Floats> load(const T* from) { return io::load_floats(Floats(), from); }
};

/// Codes of 8 bits in the same order.
struct Int8 {
  static constexpr bool kScaled = true;
  static constexpr std::int64_t kBytes = kSquareCount;

  const std::int8_t* open(const std::byte* square) const {
    return reinterpret_cast<const std::int8_t*>(square);
  }
  static HWY_INLINE hn::Vec<Floats> load(const std::int8_t* from) {
    const hn::RebindToSigned<Floats> d32;
    const hn::Rebind<std::int8_t, Floats> d8;
    return hn::ConvertTo(Floats(), hn::PromoteTo(d32, hn::LoadU(d8, from)));
  }
  static HWY_INLINE hn::Vec<Floats> scale(const ColumnScales& scales, std::int64_t /*group*/,
                                          std::int64_t column) {
    return hn::LoadU(Floats(), scales.of_int8() + column);
  }
};

/// Codes of 4 bits by rows of depth: a square's levels are looked up before its products.
template <WeightFormat format>
class FourBits {
 public:
  static constexpr bool kScaled = true;
  static constexpr std::int64_t kBytes = kSquareCount / 2;

  FourBits() {
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint16_t bits = code_levels(format)[i].bits;
      low_[i] = static_cast<std::uint8_t>(bits & 255U);
      high_[i] = static_cast<std::uint8_t>(bits >> 8U);
    }
  }
  const bfloat16* open(const std::byte* square) {
    look_up(square, levels_.data());
    return reinterpret_cast<const bfloat16*>(levels_.data());
  }
  /// Writes the levels of a square to their places in a packed one.
  void look_up(const std::byte* square, std::uint16_t* to) const {
    const hn::FixedTag<std::uint8_t, 16> d8;
    const hn::FixedTag<std::uint16_t, 8> d16;
    const auto low = hn::Load(d8, low_.data());
    const auto high = hn::Load(d8, high_.data());
    const auto nibble = hn::Set(d8, 15);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(square);
    for (std::int64_t depth = 0; depth < kBlock; ++depth, codes += 16, to += kDown) {
      const auto both = hn::LoadU(d8, codes);
      const auto put = [&](auto code, std::int64_t column) HWY_ATTR {
        const auto first = hn::TableLookupBytes(low, code);
        const auto second = hn::TableLookupBytes(high, code);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d8, first, second)), d16,
                   to + column / kStretch * kAcross);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d8, first, second)), d16,
                   to + (column / kStretch + 1) * kAcross);
      };
      put(hn::And(both, nibble), 0);
      put(hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, both))), nibble), kBlock / 2);
    }
  }
  static HWY_INLINE hn::Vec<Floats> load(const bfloat16* from) {
    return io::load_floats(Floats(), from);
  }
  static HWY_INLINE hn::Vec<Floats> scale(const ColumnScales& scales, std::int64_t group,
                                          std::int64_t column) {
    const Floats d;
    if constexpr (format == WeightFormat::q4) {
      return io::load_floats(d, scales.of_q4(group) + column);
    } else {
      const hn::RebindToSigned<Floats> d32;
      const hn::Rebind<std::uint8_t, Floats> d8;
      const ScaleRange& range = scales.range(group);
      const auto code = hn::LoadU(d8, scales.of_nf4(group) + column);
      return hn::Add(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, code)), hn::Set(d, range.step)),
                     hn::Set(d, range.least));
    }
  }

 private:
  // Places of eight neighbouring columns at one depth.
  static constexpr std::int64_t kStretch = 8;
  static constexpr std::int64_t kDown = kByVectors ? kRightDown : kBlock;
  static constexpr std::int64_t kAcross = kByVectors ? kRightAcross : kStretch;

  alignas(64) std::array<std::uint8_t, 16> low_{};
  alignas(64) std::array<std::uint8_t, 16> high_{};
  alignas(64) std::array<std::uint16_t, kSquareCount> levels_{};
};

/// Levels that were looked up before.
template <WeightFormat format>
struct LookedUp : FourBits<format> {
  static constexpr std::int64_t kBytes = kSquareCount * 2;
  const bfloat16* open(const std::byte* square) const {
    return reinterpret_cast<const bfloat16*>(square);
  }
};

// `count` rows and `vectors` vectors of columns, from `vector` on. The first part that reads a
// square fetches the next one: vectors of columns lie apart in a square, which hardware prefetchers
// do not follow.
template <class Stored, std::int64_t count, std::int64_t vectors, bool fetches>
HWY_INLINE void multiply_part(const FewRows& p, std::int64_t column, const std::byte* square,
                              std::int64_t row, std::int64_t vector, float* sums) {
  const Floats d;
  Stored stored;
  const ColumnScales scales = p.weight.scales_of(column);
  const std::int64_t steps = p.weight.steps();
  hn::Vec<Floats> sum[count][vectors];
  hn::Vec<Floats> scale[vectors];
#pragma GCC unroll 8
  for (std::int64_t j = 0; j < vectors; ++j) {
    scale[j] = hn::Zero(d);
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < count; ++i) sum[i][j] = hn::Zero(d);
  }
  const float* x = p.x + row * steps * kBlock;
  const std::int64_t stride = steps * kBlock;
  for (std::int64_t step = 0; step < steps; ++step, square += Stored::kBytes, x += kBlock) {
    if constexpr (Stored::kScaled) {
      const std::int64_t group = scales.group_of(step * kBlock);
      if (step == 0 || group != scales.group_of((step - 1) * kBlock)) {
#pragma GCC unroll 8
        for (std::int64_t j = 0; j < vectors; ++j) {
          scale[j] = Stored::scale(scales, group, (vector + j) * kLanes);
        }
      }
    }
    constexpr std::int64_t lines = Stored::kBytes / kLine;
    if constexpr (fetches && lines < kBlock) {
      for (std::int64_t line = 0; line < lines; ++line) {
        __builtin_prefetch(square + (lines + line) * kLine);
      }
    }
    const auto* const from = stored.open(square) + vector * kRightAcross;
#pragma GCC unroll 4
    for (std::int64_t depth = 0; depth < kBlock; ++depth) {
      if constexpr (fetches && lines >= kBlock) {
        for (std::int64_t line = 0; line < lines / kBlock; ++line) {
          __builtin_prefetch(square + Stored::kBytes + (depth * lines / kBlock + line) * kLine);
        }
      }
      hn::Vec<Floats> right[vectors];
#pragma GCC unroll 8
      for (std::int64_t j = 0; j < vectors; ++j) {
        right[j] = Stored::load(from + depth * kRightDown + j * kRightAcross);
        if constexpr (Stored::kScaled) right[j] = hn::Mul(right[j], scale[j]);
      }
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = hn::Set(d, x[i * stride + depth]);
#pragma GCC unroll 8
        for (std::int64_t j = 0; j < vectors; ++j) {
          sum[i][j] = hn::MulAdd(value, right[j], sum[i][j]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < count; ++i) {
    float* const to = sums + (row + i) * kBlock + vector * kLanes;
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < vectors; ++j) hn::StoreU(sum[i][j], d, to + j * kLanes);
  }
}

// Sums must fit the registers: few vectors of columns beside many rows.
template <class Stored, std::int64_t count>
void multiply_rows(const FewRows& p, std::int64_t column, const std::byte* square, std::int64_t row,
                   float* sums) {
  constexpr std::int64_t vectors = kVectorsAcross % 4 == 0 && count <= 2 ? 4 : 2;
  if (row == 0) {
    multiply_part<Stored, count, vectors, true>(p, column, square, row, 0, sums);
  } else {
    multiply_part<Stored, count, vectors, false>(p, column, square, row, 0, sums);
  }
  for (std::int64_t j = vectors; j < kVectorsAcross; j += vectors) {
    multiply_part<Stored, count, vectors, false>(p, column, square, row, j, sums);
  }
}

template <class Stored>
void multiply_column(const FewRows& p, std::int64_t column, const std::byte* square) {
  constexpr std::int64_t most = kLanes == 16 ? 8 : 4;
  float* const sums = p.sums + column * p.rows * kBlock;
  std::int64_t row = 0;
  for (; row + most <= p.rows; row += most) {
    multiply_rows<Stored, most>(p, column, square, row, sums);
  }
  if constexpr (most > 4) {
    for (; row + 4 <= p.rows; row += 4) multiply_rows<Stored, 4>(p, column, square, row, sums);
  }
  for (; row + 2 <= p.rows; row += 2) multiply_rows<Stored, 2>(p, column, square, row, sums);
  if (row < p.rows) multiply_rows<Stored, 1>(p, column, square, row, sums);
}

template <class Stored>
void multiply_columns(const FewRows& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t column = begin; column < end; ++column) {
    multiply_column<Stored>(p, column, p.weight.column(column));
  }
}

template <WeightFormat format>
void multiply_codes(const FewRows& p, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  if (p.rows <= FewRows::kLookUpEach) return multiply_columns<FourBits<format> >(p, begin, end);
  const FourBits<format> levels;
  for (std::int64_t column = begin; column < end; ++column) {
    const std::byte* square = p.weight.column(column);
    auto* to = reinterpret_cast<std::uint16_t*>(scratch);
    for (std::int64_t step = 0; step < p.weight.steps(); ++step) {
      levels.look_up(square + step * FourBits<format>::kBytes, to + step * kSquareCount);
    }
    multiply_column<LookedUp<format> >(p, column, scratch);
  }
}

bool has_few_rows_any() { return true; }

void multiply_few_rows_any(const FewRows& p, std::int64_t begin, std::int64_t end,
                           std::byte* scratch) {
  switch (p.weight.format) {
    case WeightFormat::int8:
      return multiply_columns<Int8>(p, begin, end);
    case WeightFormat::nf4:
      return multiply_codes<WeightFormat::nf4>(p, begin, end, scratch);
    case WeightFormat::q4:
      return multiply_codes<WeightFormat::q4>(p, begin, end, scratch);
    case WeightFormat::plain:
      with_type(p.weight.dtype, [&](auto type) {
        multiply_columns<Plain<typename decltype(type)::type> >(p, begin, end);
      });
  }
}

#endif

}  // namespace zero::cpu::packed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
namespace packed {
HWY_EXPORT(has_few_rows_any);
HWY_EXPORT(multiply_few_rows_any);
}  // namespace packed

bool has_few_rows() {
  using namespace packed;  // HWY_DYNAMIC_DISPATCH names a table of that namespace
  return HWY_DYNAMIC_DISPATCH(has_few_rows_any)();
}

void multiply_few_rows(const FewRows& product, std::int64_t begin, std::int64_t end,
                       std::byte* scratch) {
  using namespace packed;
  HWY_DYNAMIC_DISPATCH(multiply_few_rows_any)(product, begin, end, scratch);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
