// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What copies rows: tokens' columns of an embedding, rows of a list, keys and values into the
// cache.
#include "ops/cuda/cache_places.h"
#include "ops/cuda/codes.cuh"
#include "ops/cuda/kernels.h"

namespace zero::cuda {
namespace {

/// An embedding's table.
struct Table {
  std::int64_t in;
  std::int64_t out;
  const void* weight;
  std::int64_t column_stride;  // elements between columns and between inputs, of plain tables
  std::int64_t depth_stride;
  Levels levels;
};

/// On a row_grid of single elements.
template <class T>
__global__ void __launch_bounds__(256) embed_plain(Table o, const std::int32_t* tokens, T* x) {
  const std::int64_t depth = pack_of_thread();
  if (depth >= o.in) return;
  const std::int64_t at = tokens[blockIdx.x] * o.column_stride + depth * o.depth_stride;
  x[blockIdx.x * o.in + depth] = static_cast<const T*>(o.weight)[at];
}

template <WeightFormat format, class T>
__global__ void __launch_bounds__(256) embed_codes(Table o, const std::int32_t* tokens, T* x) {
  ZERO_SHARED float levels[16];
  load_levels<format>(o.levels, levels);
  const std::int64_t depth = pack_of_thread();
  if (depth >= o.in) return;
  const CodePlaces places(format, o.in, o.out);
  const auto* const weight = static_cast<const unsigned char*>(o.weight);
  const std::int64_t column = tokens[blockIdx.x];
  unsigned code = weight[places.code(column, depth)];
  if constexpr (code_bits(format) == 4) code = code >> (depth % 2 * 4) & 15U;
  const float value = level<format>(code, levels) * scale<format>(weight, places, column, depth);
  x[blockIdx.x * o.in + depth] = rounded<T>(value);
}

/// On a row_grid.
template <Access access, class T>
__global__ void __launch_bounds__(256)
    gather_packs(const std::int32_t* list, std::int64_t width, const T* from, T* to) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= width) return;
  const std::int64_t row = list[blockIdx.x];
  write<access>(read<access>(from + row * width + column, width - column),
                to + blockIdx.x * width + column, width - column);
}

template <class T>
struct Appended {
  const std::int32_t* positions;
  const std::int32_t* tables;
  const std::int32_t* blocks;
  const T* keys;  // of the first row, in qkv
  std::int64_t row_width;
  int kv_heads;
  T* cache;
};

/// On a row_grid of single elements of all key heads.
template <class T>
__global__ void __launch_bounds__(256) append_rows(Appended<T> o, CachePlaces<kLanes<T>> places) {
  const auto element = static_cast<int>(pack_of_thread());
  const int width = places.width();
  if (element >= o.kv_heads * width) return;
  const int position = o.positions[blockIdx.x];
  const std::int32_t block = o.blocks[o.tables[blockIdx.x] + places.entry(position)];
  T* const chunk = o.cache + places.chunk(block, element / width, position);
  const T* const key = o.keys + blockIdx.x * o.row_width + element;
  chunk[places.key(position, element % width)] = *key;
  chunk[places.value(position, element % width)] = key[o.kv_heads * width];
}

/// Calls body(type) with the element type of `dtype`, fp32, bf16 or fp16.
template <class Body>
void with_type(DType dtype, const Body& body) {
  with_access(dtype, 1, {}, [&](auto type, auto /*access*/) { body(type); });
}

}  // namespace

void embed(cudaStream_t stream, const WeightShape& s, const DevicePass& pass, View weight, View x) {
  const bool by_depth = s.layout == WeightLayout::in_out;
  const bool plain = s.format == WeightFormat::plain;
  const Table table{s.in,
                    s.out,
                    weight.data(),
                    by_depth ? 1 : s.in,
                    by_depth ? s.out : 1,
                    plain ? Levels{} : levels_of(s.format)};
  const Grid grid = row_grid(pass.rows, s.in);
  with_type(s.dtype, [&]<class T>(std::type_identity<T>) {
    if (plain) {
      return launch("embed", embed_plain<T>, grid, stream, table, pass.tokens, pointer<T>(x));
    }
    with_format(s.format, [&](auto format) {
      launch("embed", embed_codes<format(), T>, grid, stream, table, pass.tokens, pointer<T>(x));
    });
  });
}

void gather_rows(cudaStream_t stream, const RowGather& o) {
  with_access(
      o.from.dtype(), o.width, {o.from, o.to}, [&]<class T, class A>(std::type_identity<T>, A) {
        launch("gather", gather_packs<A::value, T>, row_grid(o.count, div_ceil(o.width, kLanes<T>)),
               stream, o.list, o.width, pointer<T>(o.from), pointer<T>(o.to));
      });
}

void append(cudaStream_t stream, const CachedAttention& o, const DevicePass& pass) {
  const std::int64_t width = o.cache.kv_heads * o.cache.head_width;
  with_type(o.cache.dtype, [&]<class T>(std::type_identity<T>) {
    const Appended<T> operands{pass.positions,
                               pass.tables,
                               pass.blocks,
                               pointer<T>(o.qkv) + o.heads * o.cache.head_width,
                               o.heads * o.cache.head_width + 2 * width,
                               narrow<int>(o.cache.kv_heads),
                               pointer<T>(o.layer)};
    launch("append", append_rows<T>, row_grid(pass.rows, width), stream, operands,
           CachePlaces<kLanes<T>>(o.cache));
  });
}

}  // namespace zero::cuda
