// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/make_ops.h"
#include "ops/cpu/products.h"
#include "ops/cpu/row_kernels.h"
#include "ops/ops.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kElementGrain = 1 << 14;
constexpr std::int64_t kRowGrain = 8;
constexpr std::int64_t kColumnGrain = 64;

/// Ops on a device whose memory the CPU can access: products by products.h, everything else by the
/// row kernels, spread over the device's threads.
class CpuOps final : public Ops {
 public:
  explicit CpuOps(Device& device);

  void prepare(const LinearShape& shape, LinearUse use) override;
  void prepare(const AttentionShape& shape) override;
  void prepare(const MatrixShape& shape) override;
  void prepare(const HeadNormShape& shape) override;
  void prepare(const EmbeddingShape& /*shape*/) override {}  // columns have one owner: no scratch
  std::string bits(DType dtype) const override;
  std::int64_t scratch_bytes() const override;

 private:
  void do_linear_forward(const LinearShape& shape, View x, View weight, View bias, View y) override;
  void do_linear_backward_input(const LinearShape& shape, View dy, View weight, View dx) override;
  void do_linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight,
                                 Write write) override;
  void do_column_sums(const MatrixShape& shape, View x, View sums) override;
  void do_norm_forward(const MatrixShape& shape, const NormForward& operands) override;
  void do_norm_apply(const MatrixShape& shape, const NormForward& operands) override;
  void do_norm_backward(const MatrixShape& shape, const NormBackward& operands) override;
  void do_head_norm_forward(const HeadNormShape& shape, const HeadNormForward& operands) override;
  void do_head_norm_backward(const HeadNormShape& shape, const HeadNormBackward& operands) override;
  void do_add(View x, View delta, View sum) override;
  void do_scale(View x, float factor) override;
  void do_gelu_forward(View x, View y) override;
  void do_gelu_backward(const MatrixShape& shape, View x, View dy, View y, View dbias) override;
  void do_gated_forward(const MatrixShape& shape, Gate gate, View x, View y) override;
  void do_gated_backward(const MatrixShape& shape, Gate gate, View x, View dy) override;
  void do_rotary_table(const RotaryShape& shape, const RotaryAngles& angles, View cosines,
                       View sines) override;
  void do_rotary(const RotaryShape& shape, Turn turn, View x, View cosines, View sines) override;
  void do_attention_forward(const AttentionShape& shape, View qkv, View out,
                            View logsumexp) override;
  void do_attention_backward(const AttentionShape& shape, View qkv, View out, View logsumexp,
                             View dout, View dqkv) override;
  void do_embedding_forward(const EmbeddingShape& shape, View tokens, View token_weight,
                            View position_weight, View x) override;
  void do_embedding_backward(const EmbeddingShape& shape, View tokens, View dx, View token_gradient,
                             View position_gradient) override;
  void do_cross_entropy_forward(const LogitsShape& shape, View logits, View targets,
                                View losses) override;
  void do_cross_entropy_backward(const LogitsShape& shape, View logits, View targets, float scale,
                                 View losses) override;
  void do_softmax_part(const LogitsShape& shape, View logits, View targets, View parts) override;
  void do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) override;
  void do_cross_entropy_gradient(const LogitsShape& shape, View logits, View targets, View softmax,
                                 float scale) override;
  void do_sum(View losses, View total) override;

  void submit_product(std::string_view what, const ProductShape& shape,
                      const Product::Operands& operands);
  /// Submits work that calls `kernel` for all rows, in ranges of at least `grain` rows, on all
  /// threads.
  void submit_rows(std::string_view what, std::int64_t rows, std::int64_t grain,
                   std::function<void(Rows)> kernel);
  /// Bytes of partial sums over rows: `width` floats for each kRowChunk rows.
  static std::int64_t partial_bytes(std::int64_t rows, std::int64_t width);
  /// Submits work that computes `sums`, sums over the rows of `s` with as many columns: calls
  /// add(rows, partial) for each kRowChunk rows, with the zeroed partials of all `sums` side by
  /// side.
  using AddRows = std::function<void(Rows, std::span<float>)>;
  void submit_sums(std::string_view what, const MatrixShape& s, AddRows add,
                   std::vector<View> sums);

  int threads_;
  Products products_;
  Attention attention_;
  std::int64_t partial_bytes_ = 0;
};

CpuOps::CpuOps(Device& device)
    : Ops(device),
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
  partial_bytes_ = std::max(partial_bytes_, partial_bytes(shape.rows, 2 * shape.columns));
}

void CpuOps::prepare(const HeadNormShape& shape) {
  partial_bytes_ = std::max(partial_bytes_, partial_bytes(shape.rows, 2 * shape.head_width));
}

std::string CpuOps::bits(DType dtype) const {
  return fmt::format("{} products by {}", name_of(dtype), name_of(kernels_of(dtype)));
}

std::int64_t CpuOps::scratch_bytes() const {
  return std::max({products_.scratch_bytes(), attention_.scratch_bytes(), partial_bytes_});
}

void CpuOps::submit_product(std::string_view what, const ProductShape& shape,
                            const Product::Operands& operands) {
  const Product& product = products_.get(shape);
  Product::Operands all = operands;
  all.scratch = scratch(what, product.scratch_bytes());
  device().compute().submit(what, [&product, all] { product.run(all); });
}

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

// Products and attention.

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

void CpuOps::do_attention_forward(const AttentionShape& shape, View qkv, View out, View logsumexp) {
  const Attention::Operands operands{
      .qkv = qkv,
      .out = out,
      .logsumexp = logsumexp,
      .dout = {},
      .dqkv = {},
      .scratch = scratch("attention_forward", attention_.scratch_bytes())};
  device().compute().submit("attention_forward",
                            [this, shape, operands] { attention_.forward(shape, operands); });
}

void CpuOps::do_attention_backward(const AttentionShape& shape, View qkv, View out, View logsumexp,
                                   View dout, View dqkv) {
  const Attention::Operands operands{
      .qkv = qkv,
      .out = out,
      .logsumexp = logsumexp,
      .dout = dout,
      .dqkv = dqkv,
      .scratch = scratch("attention_backward", attention_.scratch_bytes())};
  device().compute().submit("attention_backward",
                            [this, shape, operands] { attention_.backward(shape, operands); });
}

// Norms, elementwise operations, rotary embeddings and embeddings: rows spread over threads.

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

// Cross-entropy, also with columns of logits cut over several ranks.

void CpuOps::do_cross_entropy_forward(const LogitsShape& s, View logits, View targets,
                                      View losses) {
  const LogitRows operands{.shape = s, .logits = logits, .targets = targets, .losses = losses};
  submit_rows("cross_entropy_forward", s.rows, 1,
              [=](Rows rows) { cross_entropy_rows(operands, rows); });
}

void CpuOps::do_cross_entropy_backward(const LogitsShape& s, View logits, View targets, float scale,
                                       View losses) {
  const LogitRows operands{
      .shape = s, .logits = logits, .targets = targets, .losses = losses, .scale = scale};
  submit_rows("cross_entropy_backward", s.rows, 1,
              [=](Rows rows) { cross_entropy_gradient_rows(operands, rows); });
}

void CpuOps::do_softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  const LogitRows operands{.shape = s, .logits = logits, .targets = targets, .parts = parts};
  submit_rows("softmax_part", s.rows, 1, [=](Rows rows) { softmax_part_rows(operands, rows); });
}

void CpuOps::do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  device().compute().submit("fold_softmax", [=] { fold_softmax_rows(rows, ranks, parts, losses); });
}

void CpuOps::do_cross_entropy_gradient(const LogitsShape& s, View logits, View targets,
                                       View softmax, float scale) {
  const LogitRows operands{
      .shape = s, .logits = logits, .targets = targets, .parts = softmax, .scale = scale};
  submit_rows("cross_entropy_gradient", s.rows, 1,
              [=](Rows rows) { softmax_gradient_rows(operands, rows); });
}

void CpuOps::do_sum(View losses, View total) {
  device().compute().submit("sum", [losses, total] {
    double sum = 0;
    for (const double loss : losses.as<double>()) sum += loss;
    total.as<double>()[0] = sum;
  });
}

}  // namespace

std::unique_ptr<Ops> make_ops(Device& device) { return std::make_unique<CpuOps>(device); }

}  // namespace zero::cpu
