// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/ops.h"

#include <initializer_list>
#include <string_view>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

struct Operand {
  std::string_view name;
  View view;
  std::int64_t count;
  DType dtype;
};

void check(std::string_view operation, std::initializer_list<Operand> operands) {
  for (const Operand& operand : operands) {
    ZERO_CHECK(operand.view.count() == operand.count && operand.view.dtype() == operand.dtype,
               "{}: operand {} holds {} x {}, expected {} x {}", operation, operand.name,
               operand.view.count(), name_of(operand.view.dtype()), operand.count,
               name_of(operand.dtype));
  }
}

void check_dtype(std::string_view operation, DType dtype) {
  ZERO_CHECK(dtype == DType::fp32 || dtype == DType::bf16,
             "{}: computes in fp32 or bf16, not in {}", operation, name_of(dtype));
}

// A gradient or a product may also be asked for in fp32.
DType or_fp32(View view, DType dtype) { return view.dtype() == DType::fp32 ? DType::fp32 : dtype; }

std::int64_t size(const MatrixShape& shape) { return checked_mul(shape.rows, shape.columns); }

void check_norm(std::string_view operation, const MatrixShape& shape, const LayerNormForward& o) {
  check_dtype(operation, shape.dtype);
  const std::int64_t n = size(shape);
  check(operation, {{"x", o.x, n, shape.dtype},
                    {"gamma", o.gamma, shape.columns, shape.dtype},
                    {"beta", o.beta, shape.columns, shape.dtype},
                    {"y", o.y, n, shape.dtype},
                    {"statistics", o.statistics, 2 * shape.rows, DType::fp32}});
}

void check_norm(std::string_view operation, const MatrixShape& shape, const RmsNormForward& o) {
  check_dtype(operation, shape.dtype);
  const std::int64_t n = size(shape);
  check(operation, {{"x", o.x, n, shape.dtype},
                    {"weight", o.weight, shape.columns, shape.dtype},
                    {"y", o.y, n, shape.dtype},
                    {"statistics", o.statistics, shape.rows, DType::fp32}});
}

void check_attention(std::string_view operation, const AttentionShape& s) {
  check_dtype(operation, s.dtype);
  ZERO_CHECK(s.key_heads() > 0 && s.heads % s.key_heads() == 0,
             "{}: {} heads, expected a multiple of the {} of keys and values", operation, s.heads,
             s.key_heads());
}

// A table of embeddings that a family may not have.
void check_positions(std::string_view operation, const EmbeddingShape& s, View positions,
                     DType dtype) {
  if (positions.empty()) return;
  check(operation,
        {{"positions", positions.slice(0, s.sequence * s.width), s.sequence * s.width, dtype}});
}

void check_losses(std::string_view operation, const MatrixShape& shape, View logits, View targets,
                  View losses) {
  check_dtype(operation, shape.dtype);
  check(operation, {{"logits", logits, size(shape), shape.dtype},
                    {"targets", targets, shape.rows, DType::i32},
                    {"losses", losses, shape.rows, DType::fp64}});
}

void check_logits(std::string_view operation, const LogitsShape& s, View logits, View targets) {
  check_dtype(operation, s.dtype);
  check(operation, {{"logits", logits, checked_mul(s.rows, s.columns), s.dtype},
                    {"targets", targets, s.rows, DType::i32}});
}

}  // namespace

void Ops::linear_forward(const LinearShape& s, View x, View weight, View bias, View y) {
  check_dtype("linear_forward", s.dtype);
  check("linear_forward", {{"x", x, s.rows * s.in, s.dtype},
                           {"weight", weight, s.in * s.out, s.dtype},
                           {"y", y, s.rows * s.out, or_fp32(y, s.dtype)}});
  if (!bias.empty()) check("linear_forward", {{"bias", bias, s.out, s.dtype}});
  do_linear_forward(s, x, weight, bias, y);
}

void Ops::linear_backward_input(const LinearShape& s, View dy, View weight, View dx) {
  check_dtype("linear_backward_input", s.dtype);
  check("linear_backward_input", {{"dy", dy, s.rows * s.out, s.dtype},
                                  {"weight", weight, s.in * s.out, s.dtype},
                                  {"dx", dx, s.rows * s.in, s.dtype}});
  do_linear_backward_input(s, dy, weight, dx);
}

void Ops::linear_backward_weight(const LinearShape& s, View x, View dy, View dweight, Write write) {
  check_dtype("linear_backward_weight", s.dtype);
  check("linear_backward_weight", {{"x", x, s.rows * s.in, s.dtype},
                                   {"dy", dy, s.rows * s.out, s.dtype},
                                   {"dweight", dweight, s.in * s.out, s.weight_gradient}});
  do_linear_backward_weight(s, x, dy, dweight, write);
}

void Ops::linear_gelu_forward(const LinearShape& s, const LinearGeluForward& o) {
  check_dtype("linear_gelu_forward", s.dtype);
  check("linear_gelu_forward", {{"x", o.x, s.rows * s.in, s.dtype},
                                {"weight", o.weight, s.in * s.out, s.dtype},
                                {"bias", o.bias, s.out, s.dtype},
                                {"z", o.z, s.rows * s.out, s.dtype},
                                {"y", o.y, s.rows * s.out, s.dtype}});
  do_linear_gelu_forward(s, o);
}

void Ops::do_linear_gelu_forward(const LinearShape& s, const LinearGeluForward& o) {
  do_linear_forward(s, o.x, o.weight, o.bias, o.z);
  do_gelu_forward(o.z, o.y);
}

void Ops::linear_gelu_backward(const LinearShape& s, const LinearGeluBackward& o) {
  check_dtype("linear_gelu_backward", s.dtype);
  const std::int64_t n = s.rows * s.in;
  check("linear_gelu_backward", {{"dy", o.dy, s.rows * s.out, s.dtype},
                                 {"weight", o.weight, s.in * s.out, s.dtype},
                                 {"z", o.z, n, s.dtype},
                                 {"dz", o.dz, n, s.dtype},
                                 {"y", o.y, n, s.dtype},
                                 {"dbias", o.dbias, s.in, or_fp32(o.dbias, s.dtype)}});
  do_linear_gelu_backward(s, o);
}

void Ops::do_linear_gelu_backward(const LinearShape& s, const LinearGeluBackward& o) {
  do_linear_backward_input(s, o.dy, o.weight, o.dz);
  do_gelu_backward({s.rows, s.in, s.dtype}, o.z, o.dz, o.y, o.dbias);
}

void Ops::linear_backward_parameters(const LinearShape& s, View x, View dy, View dweight,
                                     View dbias) {
  check_dtype("linear_backward_parameters", s.dtype);
  check("linear_backward_parameters", {{"x", x, s.rows * s.in, s.dtype},
                                       {"dy", dy, s.rows * s.out, s.dtype},
                                       {"dweight", dweight, s.in * s.out, s.weight_gradient},
                                       {"dbias", dbias, s.out, or_fp32(dbias, s.dtype)}});
  do_linear_backward_parameters(s, x, dy, dweight, dbias);
}

void Ops::do_linear_backward_parameters(const LinearShape& s, View x, View dy, View dweight,
                                        View dbias) {
  do_linear_backward_weight(s, x, dy, dweight, Write::overwrite);
  do_column_sums({s.rows, s.out, s.dtype}, dy, dbias);
}

void Ops::column_sums(const MatrixShape& s, View x, View sums) {
  check_dtype("column_sums", s.dtype);
  check("column_sums",
        {{"x", x, size(s), s.dtype}, {"sums", sums, s.columns, or_fp32(sums, s.dtype)}});
  do_column_sums(s, x, sums);
}

void Ops::layer_norm_forward(const MatrixShape& shape, const LayerNormForward& o) {
  check_norm("layer_norm_forward", shape, o);
  if (!o.delta.empty() || !o.sum.empty()) {
    check("layer_norm_forward",
          {{"delta", o.delta, size(shape), shape.dtype}, {"sum", o.sum, size(shape), shape.dtype}});
  }
  do_layer_norm_forward(shape, o);
}

void Ops::layer_norm_apply(const MatrixShape& shape, const LayerNormForward& o) {
  check_norm("layer_norm_apply", shape, o);
  ZERO_CHECK(o.delta.empty() && o.sum.empty(),
             "layer_norm_apply: takes no delta; give what forward left in sum as x");
  do_layer_norm_apply(shape, o);
}

void Ops::layer_norm_backward(const MatrixShape& shape, const LayerNormBackward& o) {
  check_dtype("layer_norm_backward", shape.dtype);
  const std::int64_t n = size(shape);
  const DType gradient = or_fp32(o.dgamma, shape.dtype);
  check("layer_norm_backward", {{"x", o.x, n, shape.dtype},
                                {"statistics", o.statistics, 2 * shape.rows, DType::fp32},
                                {"gamma", o.gamma, shape.columns, shape.dtype},
                                {"dy", o.dy, n, shape.dtype},
                                {"dx", o.dx, n, shape.dtype},
                                {"dgamma", o.dgamma, shape.columns, gradient},
                                {"dbeta", o.dbeta, shape.columns, gradient}});
  do_layer_norm_backward(shape, o);
}

void Ops::rms_norm_forward(const MatrixShape& shape, const RmsNormForward& o) {
  check_norm("rms_norm_forward", shape, o);
  if (!o.delta.empty() || !o.sum.empty()) {
    check("rms_norm_forward",
          {{"delta", o.delta, size(shape), shape.dtype}, {"sum", o.sum, size(shape), shape.dtype}});
  }
  do_rms_norm_forward(shape, o);
}

void Ops::rms_norm_apply(const MatrixShape& shape, const RmsNormForward& o) {
  check_norm("rms_norm_apply", shape, o);
  ZERO_CHECK(o.delta.empty() && o.sum.empty(),
             "rms_norm_apply: takes no delta; give what forward left in sum as x");
  do_rms_norm_apply(shape, o);
}

void Ops::rms_norm_backward(const MatrixShape& shape, const RmsNormBackward& o) {
  check_dtype("rms_norm_backward", shape.dtype);
  const std::int64_t n = size(shape);
  check("rms_norm_backward",
        {{"x", o.x, n, shape.dtype},
         {"statistics", o.statistics, shape.rows, DType::fp32},
         {"weight", o.weight, shape.columns, shape.dtype},
         {"dy", o.dy, n, shape.dtype},
         {"dx", o.dx, n, shape.dtype},
         {"dweight", o.dweight, shape.columns, or_fp32(o.dweight, shape.dtype)}});
  do_rms_norm_backward(shape, o);
}

void Ops::add(View x, View delta, View sum) {
  check_dtype("add", x.dtype());
  check("add", {{"delta", delta, x.count(), x.dtype()}, {"sum", sum, x.count(), x.dtype()}});
  do_add(x, delta, sum);
}

void Ops::gelu_forward(View x, View y) {
  check_dtype("gelu_forward", x.dtype());
  check("gelu_forward", {{"y", y, x.count(), x.dtype()}});
  do_gelu_forward(x, y);
}

void Ops::gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) {
  check_dtype("gelu_backward", s.dtype);
  check("gelu_backward", {{"x", x, size(s), s.dtype},
                          {"dy", dy, size(s), s.dtype},
                          {"y", y, size(s), s.dtype},
                          {"dbias", dbias, s.columns, or_fp32(dbias, s.dtype)}});
  do_gelu_backward(s, x, dy, y, dbias);
}

void Ops::swiglu_forward(const MatrixShape& s, View x, View y) {
  check_dtype("swiglu_forward", s.dtype);
  check("swiglu_forward", {{"x", x, 2 * size(s), s.dtype}, {"y", y, size(s), s.dtype}});
  do_swiglu_forward(s, x, y);
}

void Ops::swiglu_backward(const MatrixShape& s, View x, View dy) {
  check_dtype("swiglu_backward", s.dtype);
  check("swiglu_backward", {{"x", x, 2 * size(s), s.dtype}, {"dy", dy, size(s), s.dtype}});
  do_swiglu_backward(s, x, dy);
}

void Ops::rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines, View sines) {
  angles.validate();
  check("rotary_table",
        {{"cosines", cosines, s.table(), DType::fp32}, {"sines", sines, s.table(), DType::fp32}});
  do_rotary_table(s, angles, cosines, sines);
}

void Ops::rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) {
  check_dtype("rotary", s.dtype);
  ZERO_CHECK(s.head_width % 2 == 0, "rotary: heads of {} elements, expected an even number",
             s.head_width);
  check("rotary", {{"x", x, s.batch * s.sequence * s.row_width, s.dtype},
                   {"cosines", cosines, s.table(), DType::fp32},
                   {"sines", sines, s.table(), DType::fp32}});
  do_rotary(s, turn, x, cosines, sines);
}

void Ops::attention_forward(const AttentionShape& s, View qkv, View out, View log_sums) {
  check_attention("attention_forward", s);
  const std::int64_t n = s.batch * s.sequence * s.heads;
  check("attention_forward", {{"qkv", qkv, s.batch * s.sequence * s.qkv_width(), s.dtype},
                              {"out", out, n * s.head_width, s.dtype},
                              {"log_sums", log_sums, n, DType::fp32}});
  do_attention_forward(s, qkv, out, log_sums);
}

void Ops::attention_backward(const AttentionShape& s, View qkv, View out, View log_sums, View dout,
                             View dqkv) {
  check_attention("attention_backward", s);
  const std::int64_t n = s.batch * s.sequence * s.heads;
  const std::int64_t wide = s.batch * s.sequence * s.qkv_width();
  check("attention_backward", {{"qkv", qkv, wide, s.dtype},
                               {"out", out, n * s.head_width, s.dtype},
                               {"log_sums", log_sums, n, DType::fp32},
                               {"dout", dout, n * s.head_width, s.dtype},
                               {"dqkv", dqkv, wide, s.dtype}});
  do_attention_backward(s, qkv, out, log_sums, dout, dqkv);
}

void Ops::embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                            View position_weight, View x) {
  check_dtype("embedding_forward", s.dtype);
  const std::int64_t rows = s.batch * s.sequence;
  check("embedding_forward", {{"tokens", tokens, rows, DType::i32},
                              {"token_weight", token_weight, s.vocabulary * s.width, s.dtype},
                              {"x", x, rows * s.width, s.dtype}});
  check_positions("embedding_forward", s, position_weight, s.dtype);
  do_embedding_forward(s, tokens, token_weight, position_weight, x);
}

void Ops::embedding_backward(const EmbeddingShape& s, View tokens, View dx, View token_gradient,
                             View position_gradient) {
  check_dtype("embedding_backward", s.dtype);
  const std::int64_t rows = s.batch * s.sequence;
  check("embedding_backward",
        {{"tokens", tokens, rows, DType::i32},
         {"dx", dx, rows * s.width, s.dtype},
         {"token_gradient", token_gradient, s.vocabulary * s.width, DType::fp32}});
  check_positions("embedding_backward", s, position_gradient, DType::fp32);
  do_embedding_backward(s, tokens, dx, token_gradient, position_gradient);
}

void Ops::cross_entropy_forward(const MatrixShape& shape, View logits, View targets, View losses) {
  check_losses("cross_entropy_forward", shape, logits, targets, losses);
  do_cross_entropy_forward(shape, logits, targets, losses);
}

void Ops::cross_entropy_backward(const MatrixShape& shape, View logits, View targets, float scale,
                                 View losses) {
  check_losses("cross_entropy_backward", shape, logits, targets, losses);
  do_cross_entropy_backward(shape, logits, targets, scale, losses);
}

void Ops::softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  check_logits("softmax_part", s, logits, targets);
  check("softmax_part", {{"parts", parts, s.rows * kSoftmaxPart, DType::fp32}});
  do_softmax_part(s, logits, targets, parts);
}

void Ops::fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  check("fold_softmax", {{"parts", parts, ranks * rows * kSoftmaxPart, DType::fp32},
                         {"losses", losses, rows, DType::fp64}});
  do_fold_softmax(rows, ranks, parts, losses);
}

void Ops::cross_entropy_gradient(const LogitsShape& s, View logits, View targets, View softmax,
                                 float scale) {
  check_logits("cross_entropy_gradient", s, logits, targets);
  check("cross_entropy_gradient", {{"softmax", softmax, s.rows * kSoftmaxPart, DType::fp32}});
  do_cross_entropy_gradient(s, logits, targets, softmax, scale);
}

void Ops::sum(View losses, View total) {
  check("sum", {{"losses", losses, losses.count(), DType::fp64}, {"total", total, 1, DType::fp64}});
  do_sum(losses, total);
}

}  // namespace zero
