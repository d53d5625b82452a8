// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/observed_ops.h"

#include <fmt/format.h>

#include <initializer_list>
#include <string_view>
#include <utility>

namespace zero {
namespace {

double bytes_of(std::initializer_list<View> operands) {
  std::int64_t bytes = 0;
  for (const View& operand : operands) bytes += operand.empty() ? 0 : operand.bytes();
  return static_cast<double>(bytes);
}

double as_double(const View& view) { return static_cast<double>(view.bytes()); }

OpCost linear_cost(std::string_view name, const LinearShape& s, double bytes) {
  return {.name = fmt::format("{} {}x{}", name, s.in, s.out),
          .flop = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) *
                  static_cast<double>(s.out),
          .bytes = bytes};
}

/// A product of every query with the keys up to its own, over all heads.
double causal_product(const AttentionShape& s) {
  const auto pairs = static_cast<double>(s.sequence) * static_cast<double>(s.sequence + 1) / 2;
  return 2.0 * static_cast<double>(s.batch * s.heads * s.head_width) * pairs;
}

class ObservedOps final : public Ops {
 public:
  ObservedOps(std::unique_ptr<Ops> inner, OpListener& listener)
      : inner_(std::move(inner)), listener_(listener) {}

  void prepare(const LinearShape& shape, LinearUse use) override { inner_->prepare(shape, use); }
  void prepare(const AttentionShape& shape) override { inner_->prepare(shape); }
  void prepare(const MatrixShape& shape) override { inner_->prepare(shape); }
  void prepare(const EmbeddingShape& shape) override { inner_->prepare(shape); }
  std::string bits(DType dtype) const override { return inner_->bits(dtype); }
  std::int64_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  void allocate_scratch() override { inner_->allocate_scratch(); }
  bool joins(const LinearShape& s, const LinearGeluForward& o) const override {
    return inner_->joins(s, o);
  }
  bool joins(const LinearShape& s, const LinearGeluBackward& o) const override {
    return inner_->joins(s, o);
  }
  bool joins(const LinearShape& s, View x, View dy, View dweight, View dbias) const override {
    return inner_->joins(s, x, dy, dweight, dbias);
  }

 private:
  /// Runs `call` between begin and end, also where it throws.
  template <typename Call>
  void observe(const OpCost& cost, const Call& call) {
    struct Scope {
      explicit Scope(OpListener& to) : listener(to) {}
      Scope(const Scope&) = delete;
      Scope& operator=(const Scope&) = delete;
      ~Scope() { listener.end(); }
      OpListener& listener;
    };
    listener_.begin(cost);
    const Scope scope(listener_);
    call();
  }

  void do_linear_forward(const LinearShape& s, View x, View weight, View bias, View y) override {
    observe(linear_cost("linear_forward", s, bytes_of({x, weight, bias, y})),
            [&] { inner_->linear_forward(s, x, weight, bias, y); });
  }
  void do_linear_backward_input(const LinearShape& s, View dy, View weight, View dx) override {
    observe(linear_cost("linear_backward_input", s, bytes_of({dy, weight, dx})),
            [&] { inner_->linear_backward_input(s, dy, weight, dx); });
  }
  void do_linear_backward_weight(const LinearShape& s, View x, View dy, View dweight,
                                 Write write) override {
    const double again = write == Write::add ? as_double(dweight) : 0;
    observe(linear_cost("linear_backward_weight", s, bytes_of({x, dy, dweight}) + again),
            [&] { inner_->linear_backward_weight(s, x, dy, dweight, write); });
  }
  void do_linear_gelu_forward(const LinearShape& s, const LinearGeluForward& o) override {
    if (!joins(s, o)) return Ops::do_linear_gelu_forward(s, o);
    observe(linear_cost("linear_gelu_forward", s, bytes_of({o.x, o.weight, o.bias, o.z, o.y})),
            [&] { inner_->linear_gelu_forward(s, o); });
  }
  void do_linear_gelu_backward(const LinearShape& s, const LinearGeluBackward& o) override {
    if (!joins(s, o)) return Ops::do_linear_gelu_backward(s, o);
    observe(
        linear_cost("linear_gelu_backward", s, bytes_of({o.dy, o.weight, o.z, o.dz, o.y, o.dbias})),
        [&] { inner_->linear_gelu_backward(s, o); });
  }
  void do_linear_backward_parameters(const LinearShape& s, View x, View dy, View dweight,
                                     View dbias) override {
    if (!joins(s, x, dy, dweight, dbias)) {
      return Ops::do_linear_backward_parameters(s, x, dy, dweight, dbias);
    }
    observe(linear_cost("linear_backward_parameters", s, bytes_of({x, dy, dweight, dbias})),
            [&] { inner_->linear_backward_parameters(s, x, dy, dweight, dbias); });
  }
  void do_column_sums(const MatrixShape& s, View x, View sums) override {
    observe({.name = "column_sums", .bytes = bytes_of({x, sums})},
            [&] { inner_->column_sums(s, x, sums); });
  }
  void do_layer_norm_forward(const MatrixShape& s, const LayerNormForward& o) override {
    observe({.name = "layer_norm_forward",
             .bytes = bytes_of({o.x, o.delta, o.sum, o.gamma, o.beta, o.y, o.statistics})},
            [&] { inner_->layer_norm_forward(s, o); });
  }
  void do_layer_norm_apply(const MatrixShape& s, const LayerNormForward& o) override {
    observe(
        {.name = "layer_norm_apply", .bytes = bytes_of({o.x, o.gamma, o.beta, o.y, o.statistics})},
        [&] { inner_->layer_norm_apply(s, o); });
  }
  void do_layer_norm_backward(const MatrixShape& s, const LayerNormBackward& o) override {
    observe({.name = "layer_norm_backward",
             .bytes = bytes_of({o.x, o.statistics, o.gamma, o.dy, o.dx, o.dgamma, o.dbeta}) +
                      as_double(o.dx)},
            [&] { inner_->layer_norm_backward(s, o); });
  }
  void do_rms_norm_forward(const MatrixShape& s, const RmsNormForward& o) override {
    observe({.name = "rms_norm_forward",
             .bytes = bytes_of({o.x, o.delta, o.sum, o.weight, o.y, o.statistics})},
            [&] { inner_->rms_norm_forward(s, o); });
  }
  void do_rms_norm_apply(const MatrixShape& s, const RmsNormForward& o) override {
    observe({.name = "rms_norm_apply", .bytes = bytes_of({o.x, o.weight, o.y, o.statistics})},
            [&] { inner_->rms_norm_apply(s, o); });
  }
  void do_rms_norm_backward(const MatrixShape& s, const RmsNormBackward& o) override {
    observe(
        {.name = "rms_norm_backward",
         .bytes = bytes_of({o.x, o.statistics, o.weight, o.dy, o.dx, o.dweight}) + as_double(o.dx)},
        [&] { inner_->rms_norm_backward(s, o); });
  }
  void do_swiglu_forward(const MatrixShape& s, View x, View y) override {
    observe({.name = "swiglu_forward", .bytes = bytes_of({x, y})},
            [&] { inner_->swiglu_forward(s, x, y); });
  }
  void do_swiglu_backward(const MatrixShape& s, View x, View dy) override {
    observe({.name = "swiglu_backward", .bytes = 2 * bytes_of({x, dy})},
            [&] { inner_->swiglu_backward(s, x, dy); });
  }
  void do_rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines,
                       View sines) override {
    observe({.name = "rotary_table", .bytes = bytes_of({cosines, sines})},
            [&] { inner_->rotary_table(s, angles, cosines, sines); });
  }
  void do_rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) override {
    // Only the heads that turn are touched.
    const double turned = static_cast<double>(s.batch * s.sequence * s.heads * s.head_width) *
                          static_cast<double>(size_of(s.dtype));
    observe({.name = "rotary", .bytes = 2 * turned + bytes_of({cosines, sines})},
            [&] { inner_->rotary(s, turn, x, cosines, sines); });
  }
  void do_add(View x, View delta, View sum) override {
    observe({.name = "add", .bytes = bytes_of({x, delta, sum})},
            [&] { inner_->add(x, delta, sum); });
  }
  void do_gelu_forward(View x, View y) override {
    observe({.name = "gelu_forward", .bytes = bytes_of({x, y})},
            [&] { inner_->gelu_forward(x, y); });
  }
  void do_gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) override {
    observe({.name = "gelu_backward", .bytes = bytes_of({x, dy, y, dbias}) + as_double(dy)},
            [&] { inner_->gelu_backward(s, x, dy, y, dbias); });
  }
  void do_attention_forward(const AttentionShape& s, View qkv, View out, View log_sums) override {
    observe({.name = "attention_forward",
             .flop = 2 * causal_product(s),
             .bytes = bytes_of({qkv, out, log_sums})},
            [&] { inner_->attention_forward(s, qkv, out, log_sums); });
  }
  void do_attention_backward(const AttentionShape& s, View qkv, View out, View log_sums, View dout,
                             View dqkv) override {
    // The probabilities again, and a gradient for each of their operands and their values'.
    observe({.name = "attention_backward",
             .flop = 5 * causal_product(s),
             .bytes = bytes_of({qkv, out, log_sums, dout, dqkv})},
            [&] { inner_->attention_backward(s, qkv, out, log_sums, dout, dqkv); });
  }
  void do_embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                            View position_weight, View x) override {
    // Only the rows of the tokens that are there are read.
    observe({.name = "embedding_forward", .bytes = as_double(tokens) + 3 * as_double(x)},
            [&] { inner_->embedding_forward(s, tokens, token_weight, position_weight, x); });
  }
  void do_embedding_backward(const EmbeddingShape& s, View tokens, View dx, View token_gradient,
                             View position_gradient) override {
    const auto sums = 4.0 * static_cast<double>(dx.count());
    observe({.name = "embedding_backward", .bytes = bytes_of({tokens, dx}) + 4 * sums},
            [&] { inner_->embedding_backward(s, tokens, dx, token_gradient, position_gradient); });
  }
  void do_cross_entropy_forward(const MatrixShape& s, View logits, View targets,
                                View losses) override {
    observe({.name = "cross_entropy_forward", .bytes = bytes_of({logits, targets, losses})},
            [&] { inner_->cross_entropy_forward(s, logits, targets, losses); });
  }
  void do_cross_entropy_backward(const MatrixShape& s, View logits, View targets, float scale,
                                 View losses) override {
    observe({.name = "cross_entropy_backward",
             .bytes = bytes_of({logits, targets, losses}) + as_double(logits)},
            [&] { inner_->cross_entropy_backward(s, logits, targets, scale, losses); });
  }
  void do_softmax_part(const LogitsShape& s, View logits, View targets, View parts) override {
    observe({.name = "softmax_part", .bytes = bytes_of({logits, targets, parts})},
            [&] { inner_->softmax_part(s, logits, targets, parts); });
  }
  void do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) override {
    observe({.name = "fold_softmax", .bytes = bytes_of({parts, losses})},
            [&] { inner_->fold_softmax(rows, ranks, parts, losses); });
  }
  void do_cross_entropy_gradient(const LogitsShape& s, View logits, View targets, View softmax,
                                 float scale) override {
    observe({.name = "cross_entropy_gradient",
             .bytes = bytes_of({logits, targets, softmax}) + as_double(logits)},
            [&] { inner_->cross_entropy_gradient(s, logits, targets, softmax, scale); });
  }
  void do_sum(View losses, View total) override {
    observe({.name = "sum of losses", .bytes = bytes_of({losses, total})},
            [&] { inner_->sum(losses, total); });
  }

  std::unique_ptr<Ops> inner_;
  OpListener& listener_;
};

}  // namespace

std::unique_ptr<Ops> observe_ops(std::unique_ptr<Ops> inner, OpListener& listener) {
  return std::make_unique<ObservedOps>(std::move(inner), listener);
}

}  // namespace zero
