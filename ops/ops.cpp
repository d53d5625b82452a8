// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

#include "base/checked_math.h"
#include "base/error.h"
#include "base/half.h"
#include "ops/op_call.h"

namespace zero {
namespace {

OpCall product(std::string_view name, const LinearShape& s) {
  check_stride(name, s.out, s.row_stride());
  return {.name = name, .dtype = s.dtype, .product = &s};
}

/// Elements of y or dy; `moved` leaves out the gaps between rows.
OpOperand outputs(std::string_view name, const LinearShape& s, View view, DType dtype) {
  return {name, view, s.rows * s.row_stride(), dtype, s.rows * s.out};
}

OpCall call_of(NormKind kind, std::string_view layer, std::string_view rms, DType dtype) {
  return {kind == NormKind::layer ? layer : rms, dtype};
}

/// Elements of delta and sum: a call has both or neither.
std::int64_t added(const MatrixShape& s, const NormForward& o) {
  return o.delta.empty() && o.sum.empty() ? 0 : s.count();
}

OpOperand statistics(const MatrixShape& s, NormKind kind, View view) {
  return {"statistics", view, kind == NormKind::layer ? 2 * s.rows : s.rows, DType::fp32};
}

/// `products` are of every query with the keys that it sees, over all heads.
OpCall attention(std::string_view name, const AttentionShape& s, double products) {
  ZERO_CHECK(s.key_heads() > 0 && s.heads % s.key_heads() == 0,
             "{}: {} heads, expected a multiple of the {} of keys and values", name, s.heads,
             s.key_heads());
  ZERO_CHECK(s.window >= 0, "{}: a window of {} positions, expected at least 1, or 0 for none",
             name, s.window);
  const auto seen = static_cast<double>(s.seen());
  const double pairs = seen * (seen + 1) / 2 + static_cast<double>(s.sequence - s.seen()) * seen;
  const double product = 2.0 * static_cast<double>(s.batch * s.heads * s.head_width) * pairs;
  return {.name = name, .dtype = s.dtype, .flop = products * product};
}

/// The table of positions: a sequence reads the first rows. Its bytes are counted with the table of
/// tokens.
OpOperand positions(const EmbeddingShape& s, View view, DType dtype) {
  const std::int64_t count = s.sequence * s.width;
  OpOperand table = optional("positions", view.empty() ? view : view.slice(0, count), count, dtype);
  table.moved = 0;
  return table;
}

/// Read once, or read and written.
OpOperand matrix(std::string_view operation, const LogitsShape& s, View logits,
                 std::int64_t times) {
  check_stride(operation, s.columns, s.row_stride());
  return {"logits", logits, checked_mul(s.rows, s.row_stride()), s.dtype,
          times * s.rows * s.columns};
}

}  // namespace

// Linear layers.

void Ops::linear_forward(const LinearShape& s, View x, View weight, View bias, View y) {
  if (!bias.empty()) check_dense("linear_forward: bias", s);
  const TracedOp op(listener_, product("linear_forward", s),
                    {{"x", x, s.rows * s.in, s.dtype},
                     {"weight", weight, s.in * s.out, s.dtype},
                     optional("bias", bias, s.out, s.dtype),
                     written(outputs("y", s, y, or_fp32(y, s.dtype)))});
  do_linear_forward(s, x, weight, bias, y);
}

void Ops::linear_backward_input(const LinearShape& s, View dy, View weight, View dx) {
  const TracedOp op(listener_, product("linear_backward_input", s),
                    {outputs("dy", s, dy, s.dtype),
                     {"weight", weight, s.in * s.out, s.dtype},
                     written({"dx", dx, s.rows * s.in, s.dtype})});
  do_linear_backward_input(s, dy, weight, dx);
}

void Ops::linear_backward_weight(const LinearShape& s, View x, View dy, View dweight, Write write) {
  const std::int64_t n = s.in * s.out;
  const TracedOp op(
      listener_, product("linear_backward_weight", s),
      {{"x", x, s.rows * s.in, s.dtype},
       outputs("dy", s, dy, s.dtype),
       write == Write::add ? updated({"dweight", dweight, n, s.weight_gradient, 2 * n})
                           : written({"dweight", dweight, n, s.weight_gradient})});
  do_linear_backward_weight(s, x, dy, dweight, write);
}

void Ops::linear_gelu_forward(const LinearShape& s, const LinearGeluForward& o) {
  const OpCall call = product("linear_gelu_forward", s);
  check_dense(call.name, s);
  const std::initializer_list<OpOperand> operands{{"x", o.x, s.rows * s.in, s.dtype},
                                                  {"weight", o.weight, s.in * s.out, s.dtype},
                                                  {"bias", o.bias, s.out, s.dtype},
                                                  written({"z", o.z, s.rows * s.out, s.dtype}),
                                                  written({"y", o.y, s.rows * s.out, s.dtype})};
  if (const Fused fused = fuse(s, o)) {
    const TracedOp op(listener_, call, operands);
    return fused();
  }
  check(call, operands);
  linear_forward(s, o.x, o.weight, o.bias, o.z);
  gelu_forward(o.z, o.y);
}

void Ops::linear_backward_parameters(const LinearShape& s, View x, View dy, View dweight,
                                     View dbias) {
  const OpCall call = product("linear_backward_parameters", s);
  check_dense(call.name, s);
  const std::initializer_list<OpOperand> operands{
      {"x", x, s.rows * s.in, s.dtype},
      {"dy", dy, s.rows * s.out, s.dtype},
      written({"dweight", dweight, s.in * s.out, s.weight_gradient}),
      written({"dbias", dbias, s.out, or_fp32(dbias, s.dtype)})};
  if (const Fused fused = fuse(s, x, dy, dweight, dbias)) {
    const TracedOp op(listener_, call, operands);
    return fused();
  }
  check(call, operands);
  linear_backward_weight(s, x, dy, dweight, Write::overwrite);
  column_sums({s.rows, s.out, s.dtype}, dy, dbias);
}

// Layer norms and RMS norms, of rows and of the heads in rows of q, k and v.

void Ops::norm_forward(const MatrixShape& s, const NormForward& o) {
  const TracedOp op(listener_, call_of(o.kind(), "layer_norm_forward", "rms_norm_forward", s.dtype),
                    {{"x", o.x, s.count(), s.dtype},
                     {"delta", o.delta, added(s, o), s.dtype},
                     written({"sum", o.sum, added(s, o), s.dtype}),
                     {"weight", o.weight, s.columns, s.dtype},
                     optional("bias", o.bias, s.columns, s.dtype),
                     written({"y", o.y, s.count(), s.dtype}),
                     written(statistics(s, o.kind(), o.statistics))});
  do_norm_forward(s, o);
}

void Ops::norm_apply(const MatrixShape& s, const NormForward& o) {
  const OpCall call = call_of(o.kind(), "layer_norm_apply", "rms_norm_apply", s.dtype);
  ZERO_CHECK(o.delta.empty() && o.sum.empty(),
             "{}: takes no delta; give what forward left in sum as x", call.name);
  const TracedOp op(listener_, call,
                    {{"x", o.x, s.count(), s.dtype},
                     {"weight", o.weight, s.columns, s.dtype},
                     optional("bias", o.bias, s.columns, s.dtype),
                     written({"y", o.y, s.count(), s.dtype}),
                     statistics(s, o.kind(), o.statistics)});
  do_norm_apply(s, o);
}

void Ops::norm_backward(const MatrixShape& s, const NormBackward& o) {
  const DType gradient = or_fp32(o.dweight, s.dtype);
  const TracedOp op(listener_,
                    call_of(o.kind(), "layer_norm_backward", "rms_norm_backward", s.dtype),
                    {{"x", o.x, s.count(), s.dtype},
                     statistics(s, o.kind(), o.statistics),
                     {"weight", o.weight, s.columns, s.dtype},
                     {"dy", o.dy, s.count(), s.dtype},
                     updated({"dx", o.dx, s.count(), s.dtype, 2 * s.count()}),
                     written({"dweight", o.dweight, s.columns, gradient}),
                     written(optional("dbias", o.dbias, s.columns, gradient))});
  do_norm_backward(s, o);
}

void Ops::head_norm_forward(const HeadNormShape& s, const HeadNormForward& o) {
  // In place the values are not touched.
  const bool in_place = o.y.data() == o.x.data();
  const std::int64_t moved = in_place ? s.rows * s.normed_heads() * s.head_width : s.count();
  const TracedOp op(
      listener_, {"head_norm_forward", s.dtype},
      {{"x", o.x, s.count(), s.dtype, moved},
       {"query_weight", o.query_weight, s.head_width, s.dtype},
       {"key_weight", o.key_weight, s.head_width, s.dtype},
       written({"y", o.y, s.count(), s.dtype, moved}),
       written(optional("statistics", o.statistics, s.rows * s.normed_heads(), DType::fp32))});
  do_head_norm_forward(s, o);
}

void Ops::head_norm_backward(const HeadNormShape& s, const HeadNormBackward& o) {
  const DType gradient = or_fp32(o.dquery, s.dtype);
  const std::int64_t normed = s.rows * s.normed_heads() * s.head_width;
  const TracedOp op(listener_, {"head_norm_backward", s.dtype},
                    {{"x", o.x, s.count(), s.dtype, normed},
                     {"statistics", o.statistics, s.rows * s.normed_heads(), DType::fp32},
                     {"query_weight", o.query_weight, s.head_width, s.dtype},
                     {"key_weight", o.key_weight, s.head_width, s.dtype},
                     updated({"dy", o.dy, s.count(), s.dtype, 2 * normed}),
                     written({"dquery", o.dquery, s.head_width, gradient}),
                     written({"dkey", o.dkey, s.head_width, gradient})});
  do_head_norm_backward(s, o);
}

// Sums, products with a number, GELU and gated units.

void Ops::column_sums(const MatrixShape& s, View x, View sums) {
  const TracedOp op(
      listener_, {"column_sums", s.dtype},
      {{"x", x, s.count(), s.dtype}, written({"sums", sums, s.columns, or_fp32(sums, s.dtype)})});
  do_column_sums(s, x, sums);
}

void Ops::add(View x, View delta, View sum) {
  const TracedOp op(listener_, {"add", x.dtype()},
                    {{"x", x, x.count(), x.dtype()},
                     {"delta", delta, x.count(), x.dtype()},
                     written({"sum", sum, x.count(), x.dtype()})});
  do_add(x, delta, sum);
}

void Ops::scale(View x, float factor) {
  const float rounded = x.dtype() == DType::bf16   ? to_float(to_bfloat16(factor))
                        : x.dtype() == DType::fp16 ? to_float(to_float16(factor))
                                                   : factor;
  const TracedOp op(listener_, {"scale", x.dtype()},
                    {updated({"x", x, x.count(), x.dtype(), 2 * x.count()})});
  do_scale(x, rounded);
}

void Ops::gelu_forward(View x, View y) {
  const TracedOp op(listener_, {"gelu_forward", x.dtype()},
                    {{"x", x, x.count(), x.dtype()}, written({"y", y, x.count(), x.dtype()})});
  do_gelu_forward(x, y);
}

void Ops::gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) {
  const bool in_place = y.data() == x.data() && y.count() == x.count() && y.dtype() == x.dtype();
  const OpOperand input{"x", x, s.count(), s.dtype, (in_place ? 2 : 1) * s.count()};
  const TracedOp op(
      listener_, {"gelu_backward", s.dtype},
      {in_place ? updated(input) : input, updated({"dy", dy, s.count(), s.dtype, 2 * s.count()}),
       written(optional("y", in_place ? View() : y, s.count(), s.dtype)),
       written({"dbias", dbias, s.columns, or_fp32(dbias, s.dtype)})});
  do_gelu_backward(s, x, dy, y, dbias);
}

void Ops::gated_forward(const MatrixShape& s, Gate gate, View x, View y) {
  const TracedOp op(listener_, {gate == Gate::silu ? "swiglu_forward" : "geglu_forward", s.dtype},
                    {{"x", x, 2 * s.count(), s.dtype}, written({"y", y, s.count(), s.dtype})});
  do_gated_forward(s, gate, x, y);
}

void Ops::gated_backward(const MatrixShape& s, Gate gate, View x, View dy) {
  const TracedOp op(listener_, {gate == Gate::silu ? "swiglu_backward" : "geglu_backward", s.dtype},
                    {updated({"x", x, 2 * s.count(), s.dtype, 4 * s.count()}),
                     updated({"dy", dy, s.count(), s.dtype, 2 * s.count()})});
  do_gated_backward(s, gate, x, dy);
}

// Causal self-attention, and the rotary embeddings of its queries and keys.

void Ops::attention_forward(const AttentionShape& s, View qkv, View out, View logsumexp) {
  const std::int64_t n = s.batch * s.sequence * s.heads;
  const TracedOp op(listener_, attention("attention_forward", s, 2),
                    {{"qkv", qkv, s.batch * s.sequence * s.qkv_width(), s.dtype},
                     written({"out", out, n * s.head_width, s.dtype}),
                     written({"logsumexp", logsumexp, n, DType::fp32})});
  do_attention_forward(s, qkv, out, logsumexp);
}

// Five products: the scores again, and the gradients of probabilities, q, k and v.
void Ops::attention_backward(const AttentionShape& s, View qkv, View out, View logsumexp, View dout,
                             View dqkv) {
  const std::int64_t n = s.batch * s.sequence * s.heads;
  const std::int64_t wide = s.batch * s.sequence * s.qkv_width();
  const TracedOp op(listener_, attention("attention_backward", s, 5),
                    {{"qkv", qkv, wide, s.dtype},
                     {"out", out, n * s.head_width, s.dtype},
                     {"logsumexp", logsumexp, n, DType::fp32},
                     {"dout", dout, n * s.head_width, s.dtype},
                     written({"dqkv", dqkv, wide, s.dtype})});
  do_attention_backward(s, qkv, out, logsumexp, dout, dqkv);
}

void Ops::rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines, View sines) {
  angles.validate();
  const TracedOp op(listener_, {"rotary_table"},
                    {written({"cosines", cosines, s.table(), DType::fp32}),
                     written({"sines", sines, s.table(), DType::fp32})});
  do_rotary_table(s, angles, cosines, sines);
}

void Ops::rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) {
  ZERO_CHECK(s.head_width % 2 == 0, "rotary: heads of {} elements, expected an even number",
             s.head_width);
  const std::int64_t rows = s.batch * s.sequence;
  const TracedOp op(
      listener_, {"rotary", s.dtype},
      {updated({"x", x, rows * s.row_width, s.dtype, 2 * rows * s.heads * s.head_width}),
       {"cosines", cosines, s.table(), DType::fp32},
       {"sines", sines, s.table(), DType::fp32}});
  do_rotary(s, turn, x, cosines, sines);
}

// Token and position embedding.

// Reads only the rows of occurring tokens and positions: twice the size of x.
void Ops::embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                            View position_weight, View x) {
  const std::int64_t rows = s.batch * s.sequence;
  const TracedOp op(
      listener_, {"embedding_forward", s.dtype},
      {{"tokens", tokens, rows, DType::i32},
       {"token_weight", token_weight, s.vocabulary * s.width, s.dtype, 2 * rows * s.width},
       written({"x", x, rows * s.width, s.dtype}),
       positions(s, position_weight, s.dtype)});
  do_embedding_forward(s, tokens, token_weight, position_weight, x);
}

// Reads and writes rows of both tables: four times the size of dx, in fp32.
void Ops::embedding_backward(const EmbeddingShape& s, View tokens, View dx, View token_gradient,
                             View position_gradient) {
  const std::int64_t rows = s.batch * s.sequence;
  const TracedOp op(listener_, {"embedding_backward", s.dtype},
                    {{"tokens", tokens, rows, DType::i32},
                     {"dx", dx, rows * s.width, s.dtype},
                     updated({"token_gradient", token_gradient, s.vocabulary * s.width, DType::fp32,
                              4 * rows * s.width}),
                     updated(positions(s, position_gradient, DType::fp32))});
  do_embedding_backward(s, tokens, dx, token_gradient, position_gradient);
}

// Cross-entropy.

void Ops::cross_entropy_forward(const LogitsShape& s, View logits, View targets, View losses) {
  const TracedOp op(listener_, {"cross_entropy_forward", s.dtype},
                    {matrix("cross_entropy_forward", s, logits, 1),
                     {"targets", targets, s.rows, DType::i32},
                     written({"losses", losses, s.rows, DType::fp64})});
  do_cross_entropy_forward(s, logits, targets, losses);
}

void Ops::cross_entropy_backward(const LogitsShape& s, View logits, View targets, float scale,
                                 View losses) {
  const TracedOp op(listener_, {"cross_entropy_backward", s.dtype},
                    {updated(matrix("cross_entropy_backward", s, logits, 2)),
                     {"targets", targets, s.rows, DType::i32},
                     written({"losses", losses, s.rows, DType::fp64})});
  do_cross_entropy_backward(s, logits, targets, scale, losses);
}

void Ops::softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  const TracedOp op(listener_, {"softmax_part", s.dtype},
                    {matrix("softmax_part", s, logits, 1),
                     {"targets", targets, s.rows, DType::i32},
                     written({"parts", parts, s.rows * kSoftmaxPart, DType::fp32})});
  do_softmax_part(s, logits, targets, parts);
}

void Ops::fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  const TracedOp op(listener_, {"fold_softmax"},
                    {updated({"parts", parts, ranks * rows * kSoftmaxPart, DType::fp32}),
                     written({"losses", losses, rows, DType::fp64})});
  do_fold_softmax(rows, ranks, parts, losses);
}

void Ops::cross_entropy_gradient(const LogitsShape& s, View logits, View targets, View softmax,
                                 float scale) {
  const TracedOp op(listener_, {"cross_entropy_gradient", s.dtype},
                    {updated(matrix("cross_entropy_gradient", s, logits, 2)),
                     {"targets", targets, s.rows, DType::i32},
                     {"softmax", softmax, s.rows * kSoftmaxPart, DType::fp32}});
  do_cross_entropy_gradient(s, logits, targets, softmax, scale);
}

void Ops::sum(View losses, View total) {
  const TracedOp op(
      listener_, {"sum of losses"},
      {{"losses", losses, losses.count(), DType::fp64}, written({"total", total, 1, DType::fp64})});
  do_sum(losses, total);
}

// Scratch.

void Ops::allocate_scratch() {
  scratch_ = Buffer();
  scratch_ = device_.allocate(scratch_bytes(), DType::u8, MemoryClass::activations, "scratch");
}

void* Ops::scratch(std::string_view what, std::int64_t bytes) const {
  ZERO_CHECK(bytes <= scratch_.view().bytes(),
             "{}: needs {} bytes of scratch, {} are allocated; prepare() its shape before "
             "allocate_scratch()",
             what, bytes, scratch_.view().bytes());
  return scratch_.view().data();
}

}  // namespace zero
