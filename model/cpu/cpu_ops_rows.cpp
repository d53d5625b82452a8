// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Norms, elementwise operations, rotary embeddings and embeddings: rows spread over threads.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"
#include "model/cpu/cpu_ops.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kElementGrain = 1 << 14;
constexpr std::int64_t kRowGrain = 8;
constexpr std::int64_t kColumnGrain = 64;

}  // namespace

void CpuOps::submit_rows(std::string_view what, std::int64_t rows, std::int64_t grain,
                         std::function<void(Rows)> kernel) {
  device().compute().submit(what, [this, rows, grain, kernel = std::move(kernel)] {
    parallel_for(threads_, rows, grain, [&](std::int64_t begin, std::int64_t end) {
      kernel({begin, end});
    });
  });
}

std::int64_t CpuOps::partial_bytes(std::int64_t rows, std::int64_t width) {
  return 4 * div_ceil(rows, kRowChunk) * width;
}

void CpuOps::submit_sums(std::string_view what, const MatrixShape& s, AddRows add,
                         std::vector<View> sums) {
  const auto width = s.columns * static_cast<std::int64_t>(sums.size());
  auto* const partials = static_cast<float*>(scratch(what, partial_bytes(s.rows, width)));
  device().compute().submit(what, [=, this, add = std::move(add), sums = std::move(sums)] {
    const std::int64_t chunks = div_ceil(s.rows, kRowChunk);
    parallel_for(threads_, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        const std::span<float> partial(partials + chunk * width, static_cast<std::size_t>(width));
        std::fill(partial.begin(), partial.end(), 0.0F);
        add({chunk * kRowChunk, std::min(s.rows, (chunk + 1) * kRowChunk)}, partial);
      }
    });
    const float* from = partials;
    for (const View& each : sums) {
      fold_partials(from, chunks, width, each);
      from += s.columns;
    }
  });
}

void CpuOps::do_column_sums(const MatrixShape& s, View x, View sums) {
  submit_sums(
      "column_sums", s,
      [=](Rows rows, std::span<float> partial) { column_sum_rows(x, s.columns, rows, partial); },
      {sums});
}

void CpuOps::do_norm_forward(const MatrixShape& s, const NormForward& o) {
  submit_rows("norm_forward", s.rows, kRowGrain,
              [=](Rows rows) { norm_forward_rows(s.columns, o, rows); });
}

void CpuOps::do_norm_apply(const MatrixShape& s, const NormForward& o) {
  submit_rows("norm_apply", s.rows, kRowGrain,
              [=](Rows rows) { norm_apply_rows(s.columns, o, rows); });
}

void CpuOps::do_norm_backward(const MatrixShape& s, const NormBackward& o) {
  std::vector<View> sums{o.dweight};
  if (o.kind() == NormKind::layer) sums.push_back(o.dbias);
  submit_sums(
      "norm_backward", s,
      [=](Rows rows, std::span<float> partial) { norm_backward_rows(s.columns, o, rows, partial); },
      std::move(sums));
}

void CpuOps::do_head_norm_forward(const HeadNormShape& s, const HeadNormForward& o) {
  submit_rows("head_norm_forward", s.rows, kRowGrain,
              [=](Rows rows) { head_norm_rows(s, o, rows); });
}

void CpuOps::do_head_norm_backward(const HeadNormShape& s, const HeadNormBackward& o) {
  submit_sums(
      "head_norm_backward", {s.rows, s.head_width, s.dtype},
      [=](Rows rows, std::span<float> partial) { head_norm_backward_rows(s, o, rows, partial); },
      {o.dquery, o.dkey});
}

void CpuOps::do_scale(View x, float factor) {
  submit_rows("scale", x.count(), kElementGrain,
              [=](Rows elements) { scale_range(x, factor, elements); });
}

void CpuOps::do_add(View x, View delta, View sum) {
  submit_rows("add", x.count(), kElementGrain,
              [=](Rows elements) { add_range(x, delta, sum, elements); });
}

void CpuOps::do_gelu_forward(View x, View y) {
  submit_rows("gelu_forward", x.count(), kElementGrain,
              [=](Rows elements) { gelu_range(x, y, elements); });
}

void CpuOps::do_gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) {
  submit_sums("gelu_backward", s,
              [=](Rows rows, std::span<float> partial) {
                gelu_backward_rows({s.columns, x, dy, y}, rows, partial);
              },
              {dbias});
}

void CpuOps::do_gated_forward(const MatrixShape& s, Gate gate, View x, View y) {
  submit_rows("gated_forward", s.rows, kRowGrain,
              [=](Rows rows) { gated_rows(gate, x, y, s.columns, rows); });
}

void CpuOps::do_gated_backward(const MatrixShape& s, Gate gate, View x, View dy) {
  submit_rows("gated_backward", s.rows, kRowGrain,
              [=](Rows rows) { gated_backward_rows(gate, x, dy, s.columns, rows); });
}

void CpuOps::do_rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines,
                             View sines) {
  submit_rows("rotary_table", s.sequence, kRowGrain,
              [=, frequencies = angles.frequencies(s.head_width)](Rows positions) {
                auto at = static_cast<std::size_t>(positions.begin) * frequencies.size();
                for (std::int64_t position = positions.begin; position < positions.end;
                     ++position) {
                  for (const double frequency : frequencies) {
                    const double angle = static_cast<double>(position) * frequency;
                    cosines.as<float>()[at] = static_cast<float>(std::cos(angle));
                    sines.as<float>()[at] = static_cast<float>(std::sin(angle));
                    ++at;
                  }
                }
              });
}

void CpuOps::do_rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) {
  const RotaryRows operands{s, turn, x, cosines, sines};
  submit_rows("rotary", s.batch * s.sequence, kRowGrain,
              [=](Rows rows) { rotary_rows(operands, rows); });
}

void CpuOps::do_embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                                  View position_weight, View x) {
  const EmbeddingRows operands{s, tokens, token_weight, position_weight, x};
  submit_rows("embedding_forward", s.batch * s.sequence, kRowGrain,
              [=](Rows rows) { embedding_rows(operands, rows); });
}

// Cut by columns: one thread owns each element and adds in row order.
void CpuOps::do_embedding_backward(const EmbeddingShape& s, View tokens, View dx,
                                   View token_gradient, View position_gradient) {
  const EmbeddingRows operands{s, tokens, token_gradient, position_gradient, dx};
  submit_rows("embedding_backward", s.width, kColumnGrain,
              [=](Rows columns) { embedding_backward_columns(operands, columns); });
}

}  // namespace zero::cpu
