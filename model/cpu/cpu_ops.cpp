// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/cpu_ops.h"

#include <algorithm>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kElementGrain = 1 << 14;
constexpr std::int64_t kRowGrain = 8;
constexpr std::int64_t kColumnGrain = 64;

std::int64_t partial_floats(std::int64_t rows, std::int64_t width) {
  return div_ceil(rows, Ops::kRowChunk) * width;
}

}  // namespace

CpuOps::CpuOps(Device& device)
    : device_(device),
      threads_(device.threads()),
      products_(device.threads()),
      attention_(device.threads()) {}

void CpuOps::prepare(const LinearShape& shape, LinearUse use) {
  const DType out = use == LinearUse::forward_fp32 ? DType::fp32 : shape.dtype;
  for (const auto epilogue : {ProductShape::Epilogue::none, ProductShape::Epilogue::bias}) {
    products_.get(forward_product(shape, out, epilogue));
  }
  if (use != LinearUse::training) return;
  products_.get(input_product(shape));
  for (const auto write : {Write::overwrite, Write::add}) {
    products_.get(weight_product(shape, write));
  }
}

void CpuOps::prepare(const AttentionShape& shape) { attention_.prepare(shape); }

void CpuOps::prepare(const MatrixShape& shape) {
  partial_bytes_ = std::max(partial_bytes_, 4 * partial_floats(shape.rows, 2 * shape.columns));
}

std::string CpuOps::bits(DType dtype) const {
  return fmt::format("{} products by {}", name_of(dtype), name_of_kernels(dtype));
}

std::int64_t CpuOps::scratch_bytes() const {
  return std::max({products_.scratch_bytes(), attention_.scratch_bytes(), partial_bytes_});
}

void CpuOps::allocate_scratch() {
  scratch_ = Buffer();
  scratch_ = device_.allocate(scratch_bytes(), DType::u8, MemoryClass::activations, "scratch");
}

void* CpuOps::scratch(std::string_view what, std::int64_t bytes) const {
  ZERO_CHECK(bytes <= scratch_.view().bytes(),
             "{}: needs {} bytes of scratch, {} are allocated; prepare() its shape before "
             "allocate_scratch()",
             what, bytes, scratch_.view().bytes());
  return scratch_.view().data();
}

void CpuOps::submit_product(std::string_view what, const ProductShape& shape,
                            const Product::Operands& operands) {
  Product& product = products_.get(shape);
  Product::Operands all = operands;
  all.scratch = scratch(what, product.scratch_bytes());
  device_.compute().submit(what, [&product, all] { product.run(all); });
}

void CpuOps::do_linear_forward(const LinearShape& shape, View x, View weight, View bias, View y) {
  const auto epilogue = bias.empty() ? ProductShape::Epilogue::none : ProductShape::Epilogue::bias;
  submit_product("linear_forward", forward_product(shape, y.dtype(), epilogue),
                 {.a = x.data(), .b = weight.data(), .bias = bias.data(), .c = y.data()});
}

void CpuOps::do_linear_backward_input(const LinearShape& shape, View dy, View weight, View dx) {
  submit_product("linear_backward_input", input_product(shape),
                 {.a = dy.data(), .b = weight.data(), .c = dx.data()});
}

void CpuOps::do_linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight,
                                       Write write) {
  const bool in_first = shape.layout == WeightLayout::in_out;
  submit_product(
      "linear_backward_weight", weight_product(shape, write),
      {.a = (in_first ? x : dy).data(), .b = (in_first ? dy : x).data(), .c = dweight.data()});
}

void CpuOps::sum_in_chunks(std::int64_t rows, std::int64_t width, float* partials,
                           const AddRows& add) const {
  parallel_for(threads_, div_ceil(rows, kRowChunk), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::span<float> partial(partials + chunk * width, static_cast<std::size_t>(width));
      std::fill(partial.begin(), partial.end(), 0.0F);
      add({chunk * kRowChunk, std::min(rows, (chunk + 1) * kRowChunk)}, partial);
    }
  });
}

void CpuOps::do_column_sums(const MatrixShape& s, View x, View sums) {
  auto* partials =
      static_cast<float*>(scratch("column_sums", 4 * partial_floats(s.rows, s.columns)));
  device_.compute().submit("column_sums", [this, s, x, sums, partials] {
    sum_in_chunks(s.rows, s.columns, partials, [&](Rows rows, std::span<float> partial) {
      column_sum_rows(x, s.columns, rows, partial);
    });
    fold_partials(partials, div_ceil(s.rows, kRowChunk), s.columns, sums);
  });
}

void CpuOps::do_layer_norm_forward(const MatrixShape& s, const LayerNormForward& o) {
  const NormRows rows{s.columns, o.x, o.delta, o.sum, o.gamma, o.beta, o.y, o.statistics};
  device_.compute().submit("layer_norm_forward", [this, s, rows] {
    parallel_for(threads_, s.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
      layer_norm_forward_rows(rows, {begin, end});
    });
  });
}

void CpuOps::do_layer_norm_apply(const MatrixShape& s, const LayerNormForward& o) {
  const NormRows rows{s.columns, o.x, {}, {}, o.gamma, o.beta, o.y, o.statistics};
  device_.compute().submit("layer_norm_apply", [this, s, rows] {
    parallel_for(threads_, s.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
      layer_norm_apply_rows(rows, {begin, end});
    });
  });
}

void CpuOps::do_layer_norm_backward(const MatrixShape& s, const LayerNormBackward& o) {
  auto* partials = static_cast<float*>(
      scratch("layer_norm_backward", 4 * partial_floats(s.rows, 2 * s.columns)));
  device_.compute().submit("layer_norm_backward", [this, s, o, partials] {
    const NormBackwardRows operands{s.columns, o.x, o.statistics, o.gamma, o.dy, o.dx};
    const auto columns = static_cast<std::size_t>(s.columns);
    sum_in_chunks(s.rows, 2 * s.columns, partials, [&](Rows rows, std::span<float> partial) {
      layer_norm_backward_rows(operands, rows, partial.first(columns), partial.last(columns));
    });
    const std::int64_t chunks = div_ceil(s.rows, kRowChunk);
    fold_partials(partials, chunks, 2 * s.columns, o.dgamma);
    fold_partials(partials + s.columns, chunks, 2 * s.columns, o.dbeta);
  });
}

void CpuOps::do_add(View x, View delta, View sum) {
  device_.compute().submit("add", [this, x, delta, sum] {
    parallel_for(threads_, x.count(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      add_range(x, delta, sum, {begin, end});
    });
  });
}

void CpuOps::do_gelu_forward(View x, View y) {
  device_.compute().submit("gelu_forward", [this, x, y] {
    parallel_for(threads_, x.count(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      gelu_range(x, y, {begin, end});
    });
  });
}

void CpuOps::do_gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) {
  auto* partials =
      static_cast<float*>(scratch("gelu_backward", 4 * partial_floats(s.rows, s.columns)));
  device_.compute().submit("gelu_backward", [this, s, x, dy, y, dbias, partials] {
    sum_in_chunks(s.rows, s.columns, partials, [&](Rows rows, std::span<float> partial) {
      gelu_backward_rows({s.columns, x, dy, y}, rows, partial);
    });
    fold_partials(partials, div_ceil(s.rows, kRowChunk), s.columns, dbias);
  });
}

void CpuOps::do_attention_forward(const AttentionShape& shape, View qkv, View out, View log_sums) {
  const Attention::Operands operands{
      .qkv = qkv,
      .out = out,
      .log_sums = log_sums,
      .dout = {},
      .dqkv = {},
      .scratch = scratch("attention_forward", attention_.scratch_bytes())};
  device_.compute().submit("attention_forward",
                           [this, shape, operands] { attention_.forward(shape, operands); });
}

void CpuOps::do_attention_backward(const AttentionShape& shape, View qkv, View out, View log_sums,
                                   View dout, View dqkv) {
  const Attention::Operands operands{
      .qkv = qkv,
      .out = out,
      .log_sums = log_sums,
      .dout = dout,
      .dqkv = dqkv,
      .scratch = scratch("attention_backward", attention_.scratch_bytes())};
  device_.compute().submit("attention_backward",
                           [this, shape, operands] { attention_.backward(shape, operands); });
}

void CpuOps::do_embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                                  View position_weight, View x) {
  const EmbeddingRows operands{s.sequence,      s.width, tokens,  token_weight,
                               position_weight, x,       s.first, s.vocabulary};
  device_.compute().submit("embedding_forward", [this, s, operands] {
    parallel_for(threads_, s.batch * s.sequence, kRowGrain,
                 [&](std::int64_t begin, std::int64_t end) {
                   embedding_rows(operands, {begin, end});
                 });
  });
}

void CpuOps::do_embedding_backward(const EmbeddingShape& s, View tokens, View dx,
                                   View token_gradient, View position_gradient) {
  const EmbeddingRows operands{s.sequence,        s.width, tokens,  token_gradient,
                               position_gradient, dx,      s.first, s.vocabulary};
  // By columns: every element has one owner, who adds in row order.
  device_.compute().submit("embedding_backward", [this, s, operands] {
    parallel_for(threads_, s.width, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
      embedding_backward_columns(operands, s.batch * s.sequence, {begin, end});
    });
  });
}

void CpuOps::do_cross_entropy_forward(const MatrixShape& s, View logits, View targets,
                                      View losses) {
  const CrossEntropyRows operands{s.columns, logits, targets, losses, 0.0F};
  device_.compute().submit("cross_entropy_forward", [this, s, operands] {
    parallel_for(threads_, s.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      cross_entropy_rows(operands, {begin, end});
    });
  });
}

void CpuOps::do_cross_entropy_backward(const MatrixShape& s, View logits, View targets, float scale,
                                       View losses) {
  const CrossEntropyRows operands{s.columns, logits, targets, losses, scale};
  device_.compute().submit("cross_entropy_backward", [this, s, operands] {
    parallel_for(threads_, s.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      cross_entropy_gradient_rows(operands, {begin, end});
    });
  });
}

void CpuOps::do_sum(View losses, View total) {
  device_.compute().submit("sum", [losses, total] {
    double sum = 0;
    for (const double loss : losses.as<double>()) sum += loss;
    total.as<double>()[0] = sum;
  });
}

}  // namespace zero::cpu
