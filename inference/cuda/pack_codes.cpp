// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/cuda/pack_codes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/cpu/parallel.h"
#include "inference/cpu/file_rows.h"
#include "inference/cpu/weight_codes.h"
#include "inference/cuda/code_places.h"

namespace zero::cuda {
namespace {

using cpu::kSquare;

static_assert(kRangeColumns == kSquare && kPanelGroups == cpu::kGroupsOfRange);

/// What some columns hold of a panel.
struct Panel {
  std::int64_t index = 0;
  std::vector<std::byte> codes{}, scales{}, ranges{};
};

/// Packs 32 columns at a time.
class Packing {
 public:
  Packing(const WeightShape& shape, const cpu::FileRows& rows)
      : shape_(shape), rows_(rows), places_(shape.format, shape.in, shape.out) {
    const std::int64_t depth = places_.panel_depth();
    const std::int64_t columns = rows.column_end() - rows.column_begin();
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    for (std::int64_t i = rows.depth_begin() / depth; i * depth < rows.depth_end(); ++i) {
      Panel& panel = panels_.emplace_back(Panel{i});
      panel.codes.resize(bytes(columns * places_.column_bytes(i)));
      panel.scales.resize(bytes(columns * places_.panel_groups() * places_.scale_bytes()));
      if (shape.format == WeightFormat::nf4) {
        panel.ranges.resize(bytes(cpu::squares(columns)) * sizeof(cpu::ScaleRange));
      }
    }
  }

  std::int64_t squares() const { return cpu::squares(rows_.column_end() - rows_.column_begin()); }
  void pack(std::int64_t square) {
    const std::int64_t column = rows_.column_begin() + square * kSquare;
    const std::vector<float> values = rows_.columns(column);
    std::vector<std::byte> scales(
        static_cast<std::size_t>(cpu::ColumnScales::bytes(shape_.format, shape_.in)));
    cpu::set_scales(shape_.format, shape_.in, rows_.depth_begin(), values, scales.data());
    const cpu::ColumnScales of_square(shape_.format, shape_.in, scales.data());
    const std::int64_t count = std::min(kSquare, rows_.column_end() - column);
    for (Panel& panel : panels_) {
      for (std::int64_t i = 0; i < count; ++i) {
        pack_codes_of(panel, values, of_square, square * kSquare, i);
        pack_scales_of(panel, of_square, square * kSquare, i);
      }
      if (panel.ranges.empty()) continue;
      const cpu::ScaleRange& range = of_square.range(panel.index * kPanelGroups);
      std::memcpy(panel.ranges.data() + static_cast<std::size_t>(square) * sizeof range, &range,
                  sizeof range);
    }
  }

  void store(const StoreBytes& store) const {
    const std::int64_t column = rows_.column_begin();
    for (const Panel& panel : panels_) {
      store(places_.code(column, panel.index * places_.panel_depth()), panel.codes);
      store(places_.scale(column, panel.index * places_.panel_groups()), panel.scales);
      if (!panel.ranges.empty()) store(places_.range(column, panel.index), panel.ranges);
    }
  }

 private:
  // Column `first + i` of the rows, of which `values` holds (depths, 32).
  void pack_codes_of(Panel& panel, const std::vector<float>& values,
                     const cpu::ColumnScales& scales, std::int64_t first, std::int64_t i) const {
    const std::int64_t begin = panel.index * places_.panel_depth();
    const std::int64_t end = std::min(shape_.in, begin + places_.panel_depth());
    std::byte* const to = panel.codes.data() + (first + i) * places_.column_bytes(panel.index);
    for (std::int64_t depth = begin; depth < end; ++depth) {
      const float value =
          values[static_cast<std::size_t>((depth - rows_.depth_begin()) * kSquare + i)];
      const int code = cpu::code_of(shape_.format, value, scales.scale(scales.group_of(depth), i));
      if (shape_.format == WeightFormat::int8) {
        to[depth - begin] = static_cast<std::byte>(code);
      } else {
        to[(depth - begin) / 2] |= static_cast<std::byte>(code << (depth % 2 * 4));
      }
    }
  }
  void pack_scales_of(Panel& panel, const cpu::ColumnScales& scales, std::int64_t first,
                      std::int64_t i) const {
    const std::int64_t groups = places_.panel_groups();
    const std::int64_t all = cpu::ColumnScales::count_groups(shape_.format, shape_.in);
    const auto bytes = static_cast<std::size_t>(places_.scale_bytes());
    for (std::int64_t j = 0; j < std::min(groups, all - panel.index * groups); ++j) {
      const std::int64_t group = panel.index * groups + j;
      const void* const from = shape_.format == WeightFormat::int8 ? scales.of_int8() + i
                               : shape_.format == WeightFormat::q4
                                   ? static_cast<const void*>(scales.of_q4(group) + i)
                                   : scales.of_nf4(group) + i;
      std::memcpy(panel.scales.data() + static_cast<std::size_t>((first + i) * groups + j) * bytes,
                  from, bytes);
    }
  }

  const WeightShape& shape_;
  const cpu::FileRows& rows_;
  CodePlaces places_;
  std::vector<Panel> panels_;
};

}  // namespace

void pack_codes(const WeightShape& shape, std::int64_t first, std::span<const float> values,
                int threads, const StoreBytes& store) {
  const cpu::FileRows rows{shape, values, first};
  Packing packing(shape, rows);
  cpu::parallel_for(threads, packing.squares(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t square = begin; square < end; ++square) packing.pack(square);
  });
  packing.store(store);
}

}  // namespace zero::cuda
