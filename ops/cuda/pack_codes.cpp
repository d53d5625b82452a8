// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/pack_codes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/cpu/parallel.h"
#include "ops/cuda/code_places.h"

namespace zero::cuda {
namespace {

static_assert(kRangeColumns == kTile && kPanelGroups == kGroupsOfRange);

/// What some columns hold of a panel.
struct Panel {
  std::int64_t index = 0;
  std::vector<std::byte> codes{}, scales{}, ranges{};
};

/// Packs 32 columns at a time.
class Packing {
 public:
  explicit Packing(const QuantizedRows& rows)
      : rows_(rows), places_(rows.shape.format, rows.shape.in, rows.shape.out) {
    const std::int64_t depth = places_.panel_depth();
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    for (std::int64_t i = rows.depth_begin() / depth; i * depth < rows.depth_end(); ++i) {
      Panel& panel = panels_.emplace_back(Panel{i});
      panel.codes.resize(bytes(rows.columns() * places_.column_bytes(i)));
      panel.scales.resize(bytes(rows.columns() * places_.panel_groups() * places_.scale_bytes()));
      if (!rows.ranges.empty()) panel.ranges.resize(bytes(blocks()) * sizeof(ScaleRange));
    }
  }

  std::int64_t blocks() const { return div_ceil(rows_.columns(), kTile); }
  void pack(std::int64_t block) {
    const std::int64_t begin = rows_.column_begin() + block * kTile;
    const std::int64_t end = std::min(rows_.column_end(), begin + kTile);
    for (Panel& panel : panels_) {
      for (std::int64_t column = begin; column < end; ++column) {
        pack_codes_of(panel, column);
        pack_scales_of(panel, column);
      }
      if (panel.ranges.empty()) continue;
      std::memcpy(panel.ranges.data() + static_cast<std::size_t>(block) * sizeof(ScaleRange),
                  &rows_.ranges[rows_.range_at(panel.index, begin)], sizeof(ScaleRange));
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
  void pack_codes_of(Panel& panel, std::int64_t column) const {
    const std::int64_t begin = panel.index * places_.panel_depth();
    const std::int64_t end = std::min(rows_.shape.in, begin + places_.panel_depth());
    std::byte* const to =
        panel.codes.data() + (column - rows_.column_begin()) * places_.column_bytes(panel.index);
    for (std::int64_t depth = begin; depth < end; ++depth) {
      const auto code = static_cast<std::byte>(rows_.codes[rows_.element_at(depth, column)]);
      if (rows_.shape.format == WeightFormat::int8) {
        to[depth - begin] = code;
      } else {
        to[(depth - begin) / 2] |= code << (depth % 2 * 4);
      }
    }
  }
  void pack_scales_of(Panel& panel, std::int64_t column) const {
    const std::int64_t groups = places_.panel_groups();
    const std::int64_t begin = panel.index * groups;
    const auto bytes = static_cast<std::size_t>(places_.scale_bytes());
    std::byte* to = panel.scales.data() +
                    static_cast<std::size_t>((column - rows_.column_begin()) * groups) * bytes;
    for (std::int64_t i = begin; i < std::min(begin + groups, rows_.group_end());
         ++i, to += bytes) {
      std::memcpy(to, rows_.scales.data() + rows_.scale_at(i, column), bytes);
    }
  }

  const QuantizedRows& rows_;
  CodePlaces places_;
  std::vector<Panel> panels_;
};

}  // namespace

void pack_codes(const QuantizedRows& rows, int threads, const StoreBytes& store) {
  Packing packing(rows);
  cpu::parallel_for(threads, packing.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) packing.pack(block);
  });
  packing.store(store);
}

}  // namespace zero::cuda
