// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/cuda_ops.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "device/cuda/stream.h"
#include "model/cuda/make_ops.h"
#include "model/cuda/product_parts.h"
#include "model/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

using Epilogue = ProductShape::Epilogue;

Products::Operands operands_of(const LinearGeluForward& o) {
  return {.a = o.x.data(),
          .b = o.weight.data(),
          .bias = o.bias.data(),
          .aux = o.z.data(),
          .c = o.y.data()};
}

/// For the gradient of a weight and of a bias, if any.
Products::Operands operands_of(const LinearShape& s, View x, View dy, View dweight, View dbias) {
  const bool in_first = s.layout == WeightLayout::in_out;
  return {.a = (in_first ? x : dy).data(),
          .b = (in_first ? dy : x).data(),
          .bias = dbias.empty() ? nullptr : dbias.data(),
          .c = dweight.data()};
}

/// dx of a part is added to that of the parts before.
ProductShape input_product(const LinearShape& s, Write write) {
  ProductShape product = input_product(s);
  product.write = write;
  return product;
}

bool has_window(const AttentionShape& s) { return s.seen() < s.sequence; }

void* element(const View& view, std::int64_t at) {
  return static_cast<std::byte*>(view.data()) + at * size_of(view.dtype());
}

}  // namespace

std::unique_ptr<Ops> make_ops(Device& device) { return std::make_unique<CudaOps>(device); }

CudaOps::CudaOps(Device& device)
    : Ops(device),
      products_(make_products(device)),
      plain_attention_(make_plain_attention()),
      library_attention_(make_cudnn_attention(device)) {}

void CudaOps::need(std::int64_t bytes) { scratch_bytes_ = std::max(scratch_bytes_, bytes); }

void CudaOps::prepare_product(const ProductShape& shape) {
  products_->prepare(shape);
  need(products_->scratch_bytes());
}

void CudaOps::prepare(const LinearShape& shape, LinearUse use) {
  if (has_parts(shape)) {
    for (const LinearPart& part : parts_of(shape)) prepare(part.shape, use);
    if (use == LinearUse::training) {
      prepare_product(input_product(parts_of(shape)[0].shape, Write::add));
    }
    return;
  }
  const DType out = use == LinearUse::forward_fp32 ? DType::fp32 : shape.dtype;
  prepare_product(forward_product(shape, out, Epilogue::none));
  if (out == shape.dtype) prepare_product(forward_product(shape, out, Epilogue::bias));
  if (use != LinearUse::training) return;
  prepare_product(input_product(shape));
  for (const auto write : {Write::overwrite, Write::add}) {
    prepare_product(weight_product(shape, write));
  }
  for (const auto& fused : {gelu_product, parameters_product}) prepare_product(fused(shape));
}

void CudaOps::prepare(const AttentionShape& shape) {
  Attention& attention = attention_of(shape);
  const std::string refusal = attention.refusal(shape);
  ZERO_CHECK(refusal.empty(), "attention on {}: {}", device().name(), refusal);
  need(attention.scratch_bytes(shape));
  if (&attention == plain_attention_.get()) return attention.prepare(shape);
  // Enough for either: a plan cannot know whether the library refuses the shape.
  if (plain_attention_->refusal(shape).empty()) need(plain_attention_->scratch_bytes(shape));
  if (device().has_memory()) prepare_library(shape);
}

void CudaOps::prepare_library(const AttentionShape& shape) {
  try {
    library_attention_->prepare(shape);
  } catch (const std::exception& error) {  // a library's may be no Error
    if (!plain_attention_->refusal(shape).empty()) throw;
    note_ = fmt::format("attention{} on {} is computed by our own kernels, which are slower: {}",
                        has_window(shape) ? " of a window" : "", device().name(), error.what());
    if (has_window(shape)) {
      library_windows_ = false;
    } else {
      library_attention_.reset();
    }
    plain_attention_->prepare(shape);
  }
}

void CudaOps::prepare(const MatrixShape& shape) {
  need(4 * partial_floats(shape.rows, 2 * shape.columns));
}

void CudaOps::prepare(const HeadNormShape& shape) { need(4 * head_norm_floats(shape)); }

void CudaOps::prepare(const EmbeddingShape& shape) { need(embedding_bytes(shape)); }

std::string CudaOps::bits(DType dtype) const {
  return fmt::format("{} products by cuBLASLt {}, attention by {}cuDNN {}", name_of(dtype),
                     cublaslt_version(), note_.empty() ? "" : "our own kernels, not ",
                     cudnn_version());
}

float* CudaOps::partials(std::string_view what, std::int64_t rows, std::int64_t width) const {
  return static_cast<float*>(scratch(what, 4 * partial_floats(rows, width)));
}

void CudaOps::submit(std::string_view what, std::function<void(cudaStream_t)> work) {
  Stream& stream = device().compute();
  stream.submit(what, [&stream, work = std::move(work)] { work(native(stream)); });
}

void CudaOps::submit_product(std::string_view what, const ProductShape& shape,
                             const Products::Operands& operands) {
  Products::Operands all = operands;
  all.scratch = scratch(what, products_->scratch_bytes());
  submit(what, [products = products_.get(), shape, all](cudaStream_t stream) {
    products->run(stream, shape, all);
  });
}

void CudaOps::do_linear_forward(const LinearShape& s, View x, View weight, View bias, View y) {
  if (has_parts(s)) {
    for (const auto& [begin, part] : parts_of(s)) {
      submit_product("linear_forward", forward_product(part, y.dtype(), Epilogue::none),
                     {.a = x.data(), .b = element(weight, begin * s.in), .c = element(y, begin)});
    }
    return;
  }
  // Libraries add a bias of the type of y only.
  const bool fused = !bias.empty() && y.dtype() == s.dtype;
  submit_product(
      "linear_forward", forward_product(s, y.dtype(), fused ? Epilogue::bias : Epilogue::none),
      {.a = x.data(), .b = weight.data(), .bias = fused ? bias.data() : nullptr, .c = y.data()});
  if (bias.empty() || fused) return;
  submit("linear_forward: bias", [s, bias, y](cudaStream_t stream) {
    add_bias(stream, {s.rows, s.out, s.dtype}, bias, y);
  });
}

// The few columns' part comes first: it is rounded before the other is added to it, in fp32.
void CudaOps::do_linear_backward_input(const LinearShape& s, View dy, View weight, View dx) {
  if (has_parts(s)) {
    const auto [wide, rest] = parts_of(s);
    for (const auto& [part, write] :
         {std::pair{rest, Write::overwrite}, std::pair{wide, Write::add}}) {
      submit_product(
          "linear_backward_input", input_product(part.shape, write),
          {.a = element(dy, part.begin), .b = element(weight, part.begin * s.in), .c = dx.data()});
    }
    return;
  }
  submit_product("linear_backward_input", input_product(s),
                 {.a = dy.data(), .b = weight.data(), .c = dx.data()});
}

void CudaOps::do_linear_backward_weight(const LinearShape& s, View x, View dy, View dweight,
                                        Write write) {
  if (has_parts(s)) {
    for (const auto& [begin, part] : parts_of(s)) {
      submit_product("linear_backward_weight", weight_product(part, write),
                     {.a = element(dy, begin), .b = x.data(), .c = element(dweight, begin * s.in)});
    }
    return;
  }
  submit_product("linear_backward_weight", weight_product(s, write),
                 operands_of(s, x, dy, dweight, View()));
}

Ops::Fused CudaOps::fuse(const LinearShape& s, const LinearGeluForward& o) {
  if (!products_->takes(gelu_product(s), operands_of(o))) return {};
  return [=, this] { submit_product("linear_gelu_forward", gelu_product(s), operands_of(o)); };
}

Ops::Fused CudaOps::fuse(const LinearShape& s, View x, View dy, View dweight, View dbias) {
  const ProductShape product = parameters_product(s);
  const Products::Operands operands = operands_of(s, x, dy, dweight, dbias);
  if (dbias.dtype() != s.weight_gradient || !products_->takes(product, operands)) return {};
  return [=, this] { submit_product("linear_backward_parameters", product, operands); };
}

void CudaOps::do_column_sums(const MatrixShape& s, View x, View sums) {
  float* const place = partials("column_sums", s.rows, s.columns);
  submit("column_sums", [=](cudaStream_t stream) { cuda::column_sums(stream, s, x, sums, place); });
}

void CudaOps::do_norm_forward(const MatrixShape& s, const NormForward& o) {
  submit("norm_forward", [s, o](cudaStream_t stream) { cuda::norm_forward(stream, s, o); });
}

void CudaOps::do_norm_apply(const MatrixShape& s, const NormForward& o) {
  submit("norm_apply", [s, o](cudaStream_t stream) { cuda::norm_apply(stream, s, o); });
}

void CudaOps::do_norm_backward(const MatrixShape& s, const NormBackward& o) {
  const std::int64_t sums = o.kind() == NormKind::layer ? 2 : 1;
  float* const place = partials("norm_backward", s.rows, sums * s.columns);
  submit("norm_backward", [=](cudaStream_t stream) { cuda::norm_backward(stream, s, o, place); });
}

void CudaOps::do_head_norm_forward(const HeadNormShape& s, const HeadNormForward& o) {
  submit("head_norm_forward",
         [s, o](cudaStream_t stream) { cuda::head_norm_forward(stream, s, o); });
}

void CudaOps::do_head_norm_backward(const HeadNormShape& s, const HeadNormBackward& o) {
  auto* const place = static_cast<float*>(scratch("head_norm_backward", 4 * head_norm_floats(s)));
  submit("head_norm_backward",
         [=](cudaStream_t stream) { cuda::head_norm_backward(stream, s, o, place); });
}

void CudaOps::do_add(View x, View delta, View sum) {
  submit("add", [=](cudaStream_t stream) { cuda::add(stream, x, delta, sum); });
}

void CudaOps::do_scale(View x, float factor) {
  submit("scale", [=](cudaStream_t stream) { cuda::scale(stream, x, factor); });
}

void CudaOps::do_gelu_forward(View x, View y) {
  submit("gelu_forward", [=](cudaStream_t stream) { cuda::gelu_forward(stream, x, y); });
}

void CudaOps::do_gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) {
  float* const place = partials("gelu_backward", s.rows, s.columns);
  submit("gelu_backward", [=](cudaStream_t stream) {
    cuda::gelu_backward(stream, s, {.x = x, .dy = dy, .y = y, .dbias = dbias, .partials = place});
  });
}

void CudaOps::do_gated_forward(const MatrixShape& s, Gate gate, View x, View y) {
  submit("gated_forward", [=](cudaStream_t stream) { cuda::gated_forward(stream, s, gate, x, y); });
}

void CudaOps::do_gated_backward(const MatrixShape& s, Gate gate, View x, View dy) {
  submit("gated_backward",
         [=](cudaStream_t stream) { cuda::gated_backward(stream, s, gate, x, dy); });
}

void CudaOps::do_rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines,
                              View sines) {
  const std::vector<double> frequencies = angles.frequencies(s.head_width);
  const auto fill = [&](View table, double (*of_angle)(double)) {
    device().kernels().generate(
        device().compute(), table,
        [frequencies, of_angle](std::int64_t begin, std::span<float> out) {
          const auto pairs = static_cast<std::int64_t>(frequencies.size());
          for (std::size_t i = 0; i < out.size(); ++i) {
            const std::int64_t at = begin + static_cast<std::int64_t>(i);
            const double frequency = frequencies[static_cast<std::size_t>(at % pairs)];
            out[i] = static_cast<float>(of_angle(static_cast<double>(at / pairs) * frequency));
          }
        });
  };
  fill(cosines, [](double angle) { return std::cos(angle); });
  fill(sines, [](double angle) { return std::sin(angle); });
}

void CudaOps::do_rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) {
  submit("rotary", [=](cudaStream_t stream) { cuda::rotary(stream, s, turn, x, cosines, sines); });
}

Attention& CudaOps::attention_of(const AttentionShape& shape) const {
  const bool library = library_attention_ && library_attention_->refusal(shape).empty() &&
                       (library_windows_ || !has_window(shape));
  return library ? *library_attention_ : *plain_attention_;
}

void CudaOps::do_attention_forward(const AttentionShape& s, View qkv, View out, View log_sums) {
  Attention& attention = attention_of(s);
  const AttentionOperands operands{
      .qkv = qkv,
      .out = out,
      .log_sums = log_sums,
      .scratch = scratch("attention_forward", attention.scratch_bytes(s))};
  submit("attention_forward", [&attention, s, operands](cudaStream_t stream) {
    attention.forward(stream, s, operands);
  });
}

void CudaOps::do_attention_backward(const AttentionShape& s, View qkv, View out, View log_sums,
                                    View dout, View dqkv) {
  Attention& attention = attention_of(s);
  const AttentionOperands operands{
      .qkv = qkv,
      .out = out,
      .log_sums = log_sums,
      .dout = dout,
      .dqkv = dqkv,
      .scratch = scratch("attention_backward", attention.scratch_bytes(s))};
  submit("attention_backward", [&attention, s, operands](cudaStream_t stream) {
    attention.backward(stream, s, operands);
  });
}

void CudaOps::do_embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                                   View position_weight, View x) {
  submit("embedding_forward", [=](cudaStream_t stream) {
    cuda::embedding_forward(stream, s, tokens, token_weight, position_weight, x);
  });
}

void CudaOps::do_embedding_backward(const EmbeddingShape& s, View tokens, View dx,
                                    View token_gradient, View position_gradient) {
  const EmbeddingBackward operands{tokens, dx, token_gradient, position_gradient,
                                   scratch("embedding_backward", embedding_bytes(s))};
  submit("embedding_backward",
         [s, operands](cudaStream_t stream) { cuda::embedding_backward(stream, s, operands); });
}

void CudaOps::do_cross_entropy_forward(const LogitsShape& s, View logits, View targets,
                                       View losses) {
  submit("cross_entropy_forward", [=](cudaStream_t stream) {
    cuda::cross_entropy_forward(stream, s, logits, targets, losses);
  });
}

void CudaOps::do_cross_entropy_backward(const LogitsShape& s, View logits, View targets,
                                        float scale, View losses) {
  submit("cross_entropy_backward", [=](cudaStream_t stream) {
    cuda::cross_entropy_backward(stream, s, logits, targets, scale, losses);
  });
}

void CudaOps::do_softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  submit("softmax_part",
         [=](cudaStream_t stream) { cuda::softmax_part(stream, s, logits, targets, parts); });
}

void CudaOps::do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  submit("fold_softmax",
         [=](cudaStream_t stream) { cuda::fold_softmax(stream, rows, ranks, parts, losses); });
}

void CudaOps::do_cross_entropy_gradient(const LogitsShape& s, View logits, View targets,
                                        View softmax, float scale) {
  submit("cross_entropy_gradient", [=](cudaStream_t stream) {
    cuda::cross_entropy_gradient(stream, s, logits, targets, softmax, scale);
  });
}

void CudaOps::do_sum(View losses, View total) {
  submit("sum", [=](cudaStream_t stream) { cuda::sum(stream, losses, total); });
}

}  // namespace zero::cuda
