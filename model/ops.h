// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"
#include "device/view.h"
#include "model/rotary.h"

namespace zero {

/// Whether a result replaces its destination or is added to it.
enum class Write : std::uint8_t { overwrite, add };

/// How a weight lies in memory: GPT-2's files have (in, out), most others (out, in).
enum class WeightLayout : std::uint8_t { in_out, out_in };

/// rows x columns, row-major, of one dtype.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::fp32;
};

/// y (rows, out) = x (rows, in) * W + bias
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::in_out;
  DType dtype = DType::fp32;            ///< of x, W, bias, y and the gradients of x and y
  DType weight_gradient = DType::fp32;  ///< `dtype`, or fp32
};

/// Operands of a linear layer that GELU follows: z (rows, out) = x W + bias, y = gelu(z).
struct LinearGeluForward {
  View x, weight, bias;
  View z, y;  ///< of the shape's dtype; other memory each
};

/// Operands of the input gradient of a linear layer whose x was y = gelu(z).
struct LinearGeluBackward {
  View dy;  ///< (rows, out)
  View weight;
  View z;      ///< (rows, in)
  View dz, y;  ///< (rows, in); overwritten; other memory each
  View dbias;  ///< (in), overwritten; the shape's dtype, or fp32
};

/// Causal self-attention of `batch` sequences; C = heads * head_width.
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;
  DType dtype = DType::fp32;
  std::int64_t kv_heads = 0;  ///< divides heads; each serves heads / kv_heads of them; 0: as heads

  std::int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  /// Elements of a row of q, k and v side by side.
  std::int64_t qkv_width() const { return (heads + 2 * key_heads()) * head_width; }
};

/// Which way rotary embeddings turn: forward by the position's angles, backward (the gradient) by
/// their negatives.
enum class Turn : std::uint8_t { forward, backward };

/// The first `heads` heads of each row of `row_width` elements turn; the rest stays.
struct RotaryShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;  ///< even
  std::int64_t row_width = 0;
  DType dtype = DType::fp32;

  /// Elements of the table of cosines, and of that of sines: (sequence, head_width / 2).
  std::int64_t table() const { return sequence * (head_width / 2); }
};

/// Token and position embedding.
struct EmbeddingShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;  ///< rows of the table of tokens
  DType dtype = DType::fp32;
  std::int64_t first = 0;  ///< the token of its first row; tokens outside the table are zeros
};

/// A chunk of rows of logits, of which this rank holds `columns` of the vocabulary.
struct LogitsShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t first = 0;  ///< the token of the first column
  DType dtype = DType::fp32;
};

/// fp32 figures of a row that softmax_part leaves: the largest logit, the sum of exp(logit -
/// largest), the target's logit (0 where another rank has it).
inline constexpr std::int64_t kSoftmaxPart = 3;

/// Operands of a layer norm's forward; (rows, columns) each but for gamma and beta (columns).
struct LayerNormForward {
  View x;
  View delta{};  ///< added to x first; empty: nothing
  View sum{};    ///< receives x + delta, rounded; given exactly where delta is; may be x's memory
  View gamma;
  View beta;
  View y;
  View statistics;  ///< fp32, 2 a row: mean and reciprocal deviation
};

/// Operands of a layer norm's backward.
struct LayerNormBackward {
  View x;           ///< what forward normalised (its `sum` where it had a delta)
  View statistics;  ///< as forward left them
  View gamma;
  View dy;
  View dx;      ///< in and out: the norm's gradient is added to the residual's already there
  View dgamma;  ///< overwritten; dtype of x, or fp32
  View dbeta;
};

/// Operands of an RMS norm's forward; (rows, columns) each but for weight (columns).
struct RmsNormForward {
  View x;
  View delta{};  ///< as LayerNormForward's
  View sum{};
  View weight;
  View y;
  View statistics;  ///< fp32, 1 a row: the reciprocal root of the mean square
  float epsilon = 1e-5F;
};

/// Operands of an RMS norm's backward.
struct RmsNormBackward {
  View x;           ///< what forward normalised
  View statistics;  ///< as forward left them
  View weight;
  View dy;
  View dx;       ///< in and out: the norm's gradient is added to the residual's already there
  View dweight;  ///< overwritten; dtype of x, or fp32
};

/// The kernels that layers are made of, free of any backend: explicit forward and backward, nothing
/// recorded. Every call submits one piece of work to the device's compute stream; views must live,
/// and stay as they are, until the stream has passed it. Public methods check counts and dtypes and
/// throw zero::Error naming the operation, the operand, found and expected.
///
/// Values are fp32 or bf16; sums are fp32. Results do not depend on the thread count or on what ran
/// before: sums over rows go through partial sums of kRowChunk rows, added in order.
///
/// Memory: prepare() the shapes to be used, then allocate_scratch() once. Afterwards no call
/// allocates.
class Ops {
 public:
  /// Rows that one partial sum over rows covers.
  static constexpr std::int64_t kRowChunk = 64;

  virtual ~Ops() = default;
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  /// What a LinearShape will be used for.
  enum class LinearUse : std::uint8_t { forward, forward_fp32, training };

  /// Makes the products of a shape ahead and notes their scratch. `forward`: linear_forward only;
  /// `forward_fp32`: with y in fp32; `training`: all that begin with linear_.
  virtual void prepare(const LinearShape& shape, LinearUse use) = 0;
  virtual void prepare(const AttentionShape& shape) = 0;
  /// For column_sums, layer_norm_backward, rms_norm_backward and gelu_backward up to this shape,
  /// and for the linear_ operations that give the sums of so many columns.
  virtual void prepare(const MatrixShape& shape) = 0;
  /// For embedding_backward of this shape.
  virtual void prepare(const EmbeddingShape& shape) = 0;
  /// What decides the bits of results of `dtype` beside Device::bits(), such as which of several
  /// product kernels the processor has; empty: nothing. Ranks compare it.
  virtual std::string bits(DType /*dtype*/) const { return {}; }
  /// Bytes that allocate_scratch() takes for what was prepared so far.
  virtual std::int64_t scratch_bytes() const = 0;
  /// Takes the scratch, charged to MemoryClass::activations.
  virtual void allocate_scratch() = 0;

  /// y = x W + bias; an empty bias is none. y: the shape's dtype, or fp32.
  void linear_forward(const LinearShape& shape, View x, View weight, View bias, View y);
  /// dx = dy W^T
  void linear_backward_input(const LinearShape& shape, View dy, View weight, View dx);
  /// dW (=, +=) x^T dy, in the weight's layout, in the shape's weight_gradient dtype.
  void linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight, Write write);

  // These give what two of the others give one after the other, with fewer passes over memory where
  // a device has a way for the operands: joins() then says so.

  virtual bool joins(const LinearShape& /*shape*/, const LinearGeluForward& /*operands*/) const {
    return false;
  }
  virtual bool joins(const LinearShape& /*shape*/, const LinearGeluBackward& /*operands*/) const {
    return false;
  }
  virtual bool joins(const LinearShape& /*shape*/, View /*x*/, View /*dy*/, View /*dweight*/,
                     View /*dbias*/) const {
    return false;
  }

  /// y = gelu(z), of z = x W + bias as it is stored or before it is rounded.
  void linear_gelu_forward(const LinearShape& shape, const LinearGeluForward& operands);
  /// dz = (dy W^T) * gelu'(z), and y = gelu(z) again; dbias (in) = the column sums of dz before
  /// rounding.
  void linear_gelu_backward(const LinearShape& shape, const LinearGeluBackward& operands);
  /// dW = x^T dy, as linear_backward_weight overwrites it, and dbias (out) = the column sums of dy,
  /// in the shape's dtype or fp32.
  void linear_backward_parameters(const LinearShape& shape, View x, View dy, View dweight,
                                  View dbias);

  /// sums (columns) = the sum of the rows of x; the dtype of x, or fp32.
  void column_sums(const MatrixShape& shape, View x, View sums);

  /// sum = x + delta; y = gamma * (sum - mean) * rstd + beta; epsilon 1e-5.
  void layer_norm_forward(const MatrixShape& shape, const LayerNormForward& operands);
  /// y again from x and the statistics of an earlier forward: the same bits.
  void layer_norm_apply(const MatrixShape& shape, const LayerNormForward& operands);
  void layer_norm_backward(const MatrixShape& shape, const LayerNormBackward& operands);

  /// sum = x + delta; y = weight * sum / root(mean(sum^2) + epsilon).
  void rms_norm_forward(const MatrixShape& shape, const RmsNormForward& operands);
  /// y again from x and the statistics of an earlier forward: the same bits.
  void rms_norm_apply(const MatrixShape& shape, const RmsNormForward& operands);
  void rms_norm_backward(const MatrixShape& shape, const RmsNormBackward& operands);

  /// sum = x + delta, rounded once; sum may be the memory of either.
  void add(View x, View delta, View sum);
  /// y = gelu(x), the tanh form of GPT-2.
  void gelu_forward(View x, View y);
  /// dy becomes dx = dy * gelu'(x); y = gelu(x) again; dbias (columns) = the column sums of dx
  /// before rounding.
  void gelu_backward(const MatrixShape& shape, View x, View dy, View y, View dbias);

  /// x (rows, 2 columns): the gate g, then u, side by side. y (rows, columns) = silu(g) * u.
  void swiglu_forward(const MatrixShape& shape, View x, View y);
  /// x becomes its own gradient, and dy becomes y again: nothing else need be kept.
  void swiglu_backward(const MatrixShape& shape, View x, View dy);

  /// Fills cosines and sines, fp32, (sequence, head_width / 2) each, by way of doubles.
  void rotary_table(const RotaryShape& shape, const RotaryAngles& angles, View cosines, View sines);
  /// x (batch * sequence, row_width): element i of a head turns with element i + head_width / 2
  /// (Hugging Face's order), in place.
  void rotary(const RotaryShape& shape, Turn turn, View x, View cosines, View sines);

  /// qkv (batch * sequence, (heads + 2 kv_heads) * head_width): the rows of q, k and v side by
  /// side, heads inside; query head h reads key head h * kv_heads / heads. out (batch * sequence,
  /// C). log_sums: fp32 (batch, heads, sequence), kept for backward. Softmax of
  /// q k^T / sqrt(head_width) over the positions up to the query's own, in blocks of rows: nothing
  /// of sequence x sequence is stored.
  void attention_forward(const AttentionShape& shape, View qkv, View out, View log_sums);
  /// dqkv from dout, recomputing the probabilities.
  void attention_backward(const AttentionShape& shape, View qkv, View out, View log_sums, View dout,
                          View dqkv);

  /// x (batch * sequence, width) = token embedding + position embedding. tokens: i32. An empty
  /// position weight is none.
  void embedding_forward(const EmbeddingShape& shape, View tokens, View token_weight,
                         View position_weight, View x);
  /// Adds dx's rows to the gradients of both tables, fp32, in row order; an empty one is none.
  void embedding_backward(const EmbeddingShape& shape, View tokens, View dx, View token_gradient,
                          View position_gradient);

  /// losses (rows, fp64) = the cross-entropy of each row of logits in nats. targets: i32, each in
  /// [0, columns): the caller has checked.
  void cross_entropy_forward(const MatrixShape& shape, View logits, View targets, View losses);
  /// The same, and logits become scale * d(loss)/d(logits).
  void cross_entropy_backward(const MatrixShape& shape, View logits, View targets, float scale,
                              View losses);
  /// parts (rows, kSoftmaxPart) of the columns there are. targets: i32, of the whole vocabulary.
  void softmax_part(const LogitsShape& shape, View logits, View targets, View parts);
  /// From the parts of all `ranks` (ranks, rows, kSoftmaxPart), in the order of ranks: largest and
  /// sum of the whole row take the place of the first rank's, and losses (rows, fp64) are the
  /// cross-entropies in nats.
  void fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses);
  /// logits become scale * d(loss)/d(logits); softmax (rows, kSoftmaxPart) as fold_softmax left it.
  void cross_entropy_gradient(const LogitsShape& shape, View logits, View targets, View softmax,
                              float scale);
  /// total (one fp64) = the sum of losses, in an order that depends on their count alone: the CPU
  /// adds one after the other, a GPU stretches of them and then those.
  void sum(View losses, View total);

 protected:
  // One operation after the other: what a device has that knows no better.
  virtual void do_linear_gelu_forward(const LinearShape& shape, const LinearGeluForward& operands);
  virtual void do_linear_gelu_backward(const LinearShape& shape,
                                       const LinearGeluBackward& operands);
  virtual void do_linear_backward_parameters(const LinearShape& shape, View x, View dy,
                                             View dweight, View dbias);

 private:
  virtual void do_linear_forward(const LinearShape& shape, View x, View weight, View bias,
                                 View y) = 0;
  virtual void do_linear_backward_input(const LinearShape& shape, View dy, View weight,
                                        View dx) = 0;
  virtual void do_linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight,
                                         Write write) = 0;
  virtual void do_column_sums(const MatrixShape& shape, View x, View sums) = 0;
  virtual void do_layer_norm_forward(const MatrixShape& shape,
                                     const LayerNormForward& operands) = 0;
  virtual void do_layer_norm_apply(const MatrixShape& shape, const LayerNormForward& operands) = 0;
  virtual void do_layer_norm_backward(const MatrixShape& shape,
                                      const LayerNormBackward& operands) = 0;
  virtual void do_rms_norm_forward(const MatrixShape& shape, const RmsNormForward& operands) = 0;
  virtual void do_rms_norm_apply(const MatrixShape& shape, const RmsNormForward& operands) = 0;
  virtual void do_rms_norm_backward(const MatrixShape& shape, const RmsNormBackward& operands) = 0;
  virtual void do_add(View x, View delta, View sum) = 0;
  virtual void do_gelu_forward(View x, View y) = 0;
  virtual void do_gelu_backward(const MatrixShape& shape, View x, View dy, View y, View dbias) = 0;
  virtual void do_swiglu_forward(const MatrixShape& shape, View x, View y) = 0;
  virtual void do_swiglu_backward(const MatrixShape& shape, View x, View dy) = 0;
  virtual void do_rotary_table(const RotaryShape& shape, const RotaryAngles& angles, View cosines,
                               View sines) = 0;
  virtual void do_rotary(const RotaryShape& shape, Turn turn, View x, View cosines, View sines) = 0;
  virtual void do_attention_forward(const AttentionShape& shape, View qkv, View out,
                                    View log_sums) = 0;
  virtual void do_attention_backward(const AttentionShape& shape, View qkv, View out, View log_sums,
                                     View dout, View dqkv) = 0;
  virtual void do_embedding_forward(const EmbeddingShape& shape, View tokens, View token_weight,
                                    View position_weight, View x) = 0;
  virtual void do_embedding_backward(const EmbeddingShape& shape, View tokens, View dx,
                                     View token_gradient, View position_gradient) = 0;
  virtual void do_cross_entropy_forward(const MatrixShape& shape, View logits, View targets,
                                        View losses) = 0;
  virtual void do_cross_entropy_backward(const MatrixShape& shape, View logits, View targets,
                                         float scale, View losses) = 0;
  virtual void do_softmax_part(const LogitsShape& shape, View logits, View targets, View parts) = 0;
  virtual void do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) = 0;
  virtual void do_cross_entropy_gradient(const LogitsShape& shape, View logits, View targets,
                                         View softmax, float scale) = 0;
  virtual void do_sum(View losses, View total) = 0;
};

/// The kernels for `device`, which must outlive them; throws zero::Error where there are none.
std::unique_ptr<Ops> make_ops(Device& device);

}  // namespace zero
