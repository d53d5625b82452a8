// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/dispatch.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// The token's row of the table; null if the token is outside.
template <typename T>
T* token_row(const EmbeddingRows& o, std::int64_t row) {
  const std::int64_t token = *row_of<std::int32_t>(o.tokens, row, 1) - o.shape.first;
  return token < 0 || token >= o.shape.vocabulary ? nullptr
                                                  : row_of<T>(o.token_weight, token, o.shape.width);
}

void embed(const EmbeddingRows& o, Rows rows) {
  const auto count = static_cast<std::size_t>(o.shape.width);
  dispatch(o.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const T* token = token_row<T>(o, row);
      const T* position = o.position_weight.empty()
                              ? nullptr
                              : row_of<T>(o.position_weight, row % o.shape.sequence, o.shape.width);
      T* x = row_of<T>(o.x, row, o.shape.width);
      if (token != nullptr && position != nullptr) {
        add_rows(token, position, x, count);
      } else if (const T* only = token != nullptr ? token : position; only != nullptr) {
        std::memcpy(x, only, count * sizeof(T));
      } else {
        std::fill_n(x, count, T{});
      }
    }
  });
}

void embed_backward(const EmbeddingRows& o, Rows columns) {
  const auto count = static_cast<std::size_t>(columns.end - columns.begin);
  dispatch(o.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = 0; row < o.shape.batch * o.shape.sequence; ++row) {
      const T* dx = row_of<T>(o.x, row, o.shape.width) + columns.begin;
      if (float* table = token_row<float>(o, row); table != nullptr) {
        float* of_token = table + columns.begin;
        add_rows(dx, of_token, of_token, count);
      }
      if (o.position_weight.empty()) continue;
      float* of_position =
          row_of<float>(o.position_weight, row % o.shape.sequence, o.shape.width) + columns.begin;
      add_rows(dx, of_position, of_position, count);
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(embed);
HWY_EXPORT(embed_backward);

void embedding_rows(const EmbeddingRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(embed)(operands, rows);
}

void embedding_backward_columns(const EmbeddingRows& operands, Rows columns) {
  HWY_DYNAMIC_DISPATCH(embed_backward)(operands, columns);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
