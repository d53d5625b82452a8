// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "architecture/rotary.h"
#include "device/device.h"
#include "device/planning/clock.h"
#include "ops/op_shapes.h"

namespace zero {

class OpListener;

/// The operations of the layers, for all backends: explicit forward and backward, no tape. Every
/// call submits one piece of work to the device's compute stream; views must live, with unchanged
/// content, until the stream has passed it. Public methods check counts and dtypes, throw
/// zero::Error naming the operation, the operand, found and expected, then notify the listener, if
/// any. Backends implement the functions that begin with do_.
///
/// Values are fp32, bf16 or fp16, sums fp32; a value beyond fp16 becomes infinite. Results do not
/// depend on the thread count or on earlier calls: sums over rows go through partial sums of
/// kRowChunk rows, added in order.
///
/// Memory: prepare() all shapes, then allocate_scratch() once. Later calls do not allocate.
class Ops {
 public:
  /// Rows that one partial sum over rows covers.
  static constexpr std::int64_t kRowChunk = 64;

  virtual ~Ops() = default;
  /// `device` must outlive the operations.
  explicit Ops(Device& device) : device_(device) {}
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  /// Which operations will use a LinearShape.
  enum class LinearUse : std::uint8_t { forward, forward_fp32, training };

  /// Creates the products of a shape in advance and notes their scratch. `forward`: linear_forward
  /// only; `forward_fp32`: with y in fp32; `training`: all linear_ operations.
  virtual void prepare(const LinearShape& shape, LinearUse use) = 0;
  virtual void prepare(const AttentionShape& shape) = 0;
  /// For column_sums, norm_backward and gelu_backward up to this shape, and for the linear_
  /// operations that give column sums of that width.
  virtual void prepare(const MatrixShape& shape) = 0;
  /// For head_norm_backward of this shape.
  virtual void prepare(const HeadNormShape& shape) = 0;
  /// For embedding_backward of this shape.
  virtual void prepare(const EmbeddingShape& shape) = 0;
  /// Names everything else, besides Device::bits(), that decides the bits of results of `dtype`,
  /// such as the processor's product kernels; may be empty. Ranks compare it.
  virtual std::string bits(DType /*dtype*/) const { return {}; }
  /// One sentence for the user on how the device computes the prepared shapes, such as that a
  /// library refused one; may be empty.
  virtual std::string note() const { return {}; }
  /// Notifies `listener` of every later operation; it must outlive those calls. Null: none.
  void listen(OpListener* listener) { listener_ = listener; }
  /// Bytes that allocate_scratch() allocates for the shapes prepared so far.
  virtual std::int64_t scratch_bytes() const = 0;
  /// Allocates the scratch, charged to MemoryClass::activations.
  void allocate_scratch();

  /// y = x W + bias; the bias may be empty. y: the shape's dtype, or fp32.
  void linear_forward(const LinearShape& shape, View x, View weight, View bias, View y);
  /// dx = dy W^T
  void linear_backward_input(const LinearShape& shape, View dy, View weight, View dx);
  /// dW (=, +=) x^T dy, in the weight's layout, in the shape's weight_gradient dtype.
  void linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight, Write write);

  // Each of the next two combines two other operations: in fewer passes over memory if the device
  // can fuse them for these operands, otherwise by calling both.

  /// y = gelu(z), z = x W + bias; gelu may take z as stored or before rounding.
  void linear_gelu_forward(const LinearShape& shape, const LinearGeluForward& operands);
  /// dW = x^T dy, overwritten as by linear_backward_weight, and dbias (out) = the column sums of
  /// dy, in the shape's dtype or fp32.
  void linear_backward_parameters(const LinearShape& shape, View x, View dy, View dweight,
                                  View dbias);

  /// sums (columns) = the sum of the rows of x; the dtype of x, or fp32.
  void column_sums(const MatrixShape& shape, View x, View sums);

  /// sum = x + delta; y = weight * (sum - mean) * rstd + bias, or, without a bias, y = weight * sum
  /// / root(mean(sum^2) + epsilon). Listeners receive the names "layer_norm_forward" or
  /// "rms_norm_forward", and so on.
  void norm_forward(const MatrixShape& shape, const NormForward& operands);
  /// Recomputes y from x and the statistics of an earlier forward: the same bits.
  void norm_apply(const MatrixShape& shape, const NormForward& operands);
  void norm_backward(const MatrixShape& shape, const NormBackward& operands);

  /// y = x, each head of q and of k as by an RMS norm of its head_width elements.
  void head_norm_forward(const HeadNormShape& shape, const HeadNormForward& operands);
  void head_norm_backward(const HeadNormShape& shape, const HeadNormBackward& operands);

  /// sum = x + delta, rounded once; sum may be the memory of either.
  void add(View x, View delta, View sum);
  /// x = x * factor, the factor and the product rounded to the dtype of x.
  void scale(View x, float factor);
  /// y = gelu(x), the tanh form of GPT-2.
  void gelu_forward(View x, View y);
  /// dy becomes dx = dy * gelu'(x); y = gelu(x) recomputed, unless y is empty; y may be the memory
  /// of x. dbias (columns) = the column sums of dx before rounding.
  void gelu_backward(const MatrixShape& shape, View x, View dy, View y, View dbias);

  /// x (rows, 2 columns): g, then u, side by side. y (rows, columns) = gate(g) * u. Listeners
  /// receive the names "swiglu_forward" or "geglu_forward", and so on.
  void gated_forward(const MatrixShape& shape, Gate gate, View x, View y);
  /// x becomes dx, and dy becomes y, recomputed: backward needs no other kept operand.
  void gated_backward(const MatrixShape& shape, Gate gate, View x, View dy);

  /// Fills cosines and sines, fp32, (sequence, head_width / 2) each, computed in fp64.
  void rotary_table(const RotaryShape& shape, const RotaryAngles& angles, View cosines, View sines);
  /// x (batch * sequence, row_width): rotates element i of a head with element i + head_width / 2
  /// (Hugging Face's order), in place.
  void rotary(const RotaryShape& shape, Turn turn, View x, View cosines, View sines);

  /// qkv (batch * sequence, (heads + 2 kv_heads) * head_width): rows of q, k and v side by side,
  /// each split into heads; query head h reads key head h * kv_heads / heads. out (batch *
  /// sequence, C). logsumexp: fp32 (batch, heads, sequence), kept for backward. Softmax of
  /// score_scale() q k^T over the positions up to the query's own, the last `window` of them if
  /// there is a window, in blocks of rows: no sequence x sequence matrix is stored, and blocks that
  /// no query sees are skipped.
  void attention_forward(const AttentionShape& shape, View qkv, View out, View logsumexp);
  /// dqkv from dout, recomputing the probabilities.
  void attention_backward(const AttentionShape& shape, View qkv, View out, View logsumexp,
                          View dout, View dqkv);

  /// x (batch * sequence, width) = token embedding + position embedding. tokens: i32. The position
  /// weight may be empty.
  void embedding_forward(const EmbeddingShape& shape, View tokens, View token_weight,
                         View position_weight, View x);
  /// Adds dx's rows to the gradients of both tables, fp32, in row order; that of positions may be
  /// empty.
  void embedding_backward(const EmbeddingShape& shape, View tokens, View dx, View token_gradient,
                          View position_gradient);

  /// losses (rows, fp64) = the cross-entropy of each row of logits in nats. targets: i32, each in
  /// [0, columns), checked by the caller.
  void cross_entropy_forward(const LogitsShape& shape, View logits, View targets, View losses);
  /// The same, and overwrites logits with scale * d(loss)/d(logits).
  void cross_entropy_backward(const LogitsShape& shape, View logits, View targets, float scale,
                              View losses);
  /// parts (rows, kSoftmaxPart) of this rank's columns. targets: i32, of the whole vocabulary.
  void softmax_part(const LogitsShape& shape, View logits, View targets, View parts);
  /// Folds the parts of all `ranks` (ranks, rows, kSoftmaxPart), in rank order: largest and sum of
  /// the whole row replace the first rank's; losses (rows, fp64) = the cross-entropies in nats.
  void fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses);
  /// Overwrites logits with scale * d(loss)/d(logits); softmax (rows, kSoftmaxPart):
  /// fold_softmax's.
  void cross_entropy_gradient(const LogitsShape& shape, View logits, View targets, View softmax,
                              float scale);
  /// total (one fp64) = the sum of losses, in an order that depends on their count only: the CPU
  /// adds one after another, a GPU adds each part of them and then the parts' sums.
  void sum(View losses, View total);

 protected:
  /// A fused operation on given operands; empty if the device cannot fuse them.
  using Fused = std::function<void()>;

  Device& device() const { return device_; }
  /// Scratch of `bytes`; throws zero::Error if allocate_scratch() has not allocated as much.
  void* scratch(std::string_view what, std::int64_t bytes) const;

 private:
  virtual Fused fuse(const LinearShape& /*shape*/, const LinearGeluForward& /*operands*/) {
    return {};
  }
  /// linear_backward_parameters.
  virtual Fused fuse(const LinearShape& /*shape*/, View /*x*/, View /*dy*/, View /*dweight*/,
                     View /*dbias*/) {
    return {};
  }
  virtual void do_linear_forward(const LinearShape& shape, View x, View weight, View bias,
                                 View y) = 0;
  virtual void do_linear_backward_input(const LinearShape& shape, View dy, View weight,
                                        View dx) = 0;
  virtual void do_linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight,
                                         Write write) = 0;
  virtual void do_column_sums(const MatrixShape& shape, View x, View sums) = 0;
  virtual void do_norm_forward(const MatrixShape& shape, const NormForward& operands) = 0;
  virtual void do_norm_apply(const MatrixShape& shape, const NormForward& operands) = 0;
  virtual void do_norm_backward(const MatrixShape& shape, const NormBackward& operands) = 0;
  virtual void do_head_norm_forward(const HeadNormShape& shape,
                                    const HeadNormForward& operands) = 0;
  virtual void do_head_norm_backward(const HeadNormShape& shape,
                                     const HeadNormBackward& operands) = 0;
  virtual void do_add(View x, View delta, View sum) = 0;
  virtual void do_scale(View x, float factor) = 0;
  virtual void do_gelu_forward(View x, View y) = 0;
  virtual void do_gelu_backward(const MatrixShape& shape, View x, View dy, View y, View dbias) = 0;
  virtual void do_gated_forward(const MatrixShape& shape, Gate gate, View x, View y) = 0;
  virtual void do_gated_backward(const MatrixShape& shape, Gate gate, View x, View dy) = 0;
  virtual void do_rotary_table(const RotaryShape& shape, const RotaryAngles& angles, View cosines,
                               View sines) = 0;
  virtual void do_rotary(const RotaryShape& shape, Turn turn, View x, View cosines, View sines) = 0;
  virtual void do_attention_forward(const AttentionShape& shape, View qkv, View out,
                                    View logsumexp) = 0;
  virtual void do_attention_backward(const AttentionShape& shape, View qkv, View out,
                                     View logsumexp, View dout, View dqkv) = 0;
  virtual void do_embedding_forward(const EmbeddingShape& shape, View tokens, View token_weight,
                                    View position_weight, View x) = 0;
  virtual void do_embedding_backward(const EmbeddingShape& shape, View tokens, View dx,
                                     View token_gradient, View position_gradient) = 0;
  virtual void do_cross_entropy_forward(const LogitsShape& shape, View logits, View targets,
                                        View losses) = 0;
  virtual void do_cross_entropy_backward(const LogitsShape& shape, View logits, View targets,
                                         float scale, View losses) = 0;
  virtual void do_softmax_part(const LogitsShape& shape, View logits, View targets, View parts) = 0;
  virtual void do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) = 0;
  virtual void do_cross_entropy_gradient(const LogitsShape& shape, View logits, View targets,
                                         View softmax, float scale) = 0;
  virtual void do_sum(View losses, View total) = 0;

  Device& device_;
  Buffer scratch_;
  OpListener* listener_ = nullptr;
};

/// The operations of `device`, which must outlive them; throws zero::Error if it has none.
std::unique_ptr<Ops> make_ops(Device& device);

/// Whether this build has a GPU's operations.
bool has_gpu_ops();
/// A device without memory that stands for a GPU. In a build without a GPU's operations it has a
/// CPU's (planning::open_gpu_memory()): every figure is the GPU's but the scratch of operations.
std::unique_ptr<Device> plan_gpu(const planning::ClockOptions& clock = {});

}  // namespace zero
