// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu_ops.h"

#include <algorithm>

#include "ops/cpu/product_choice.h"

namespace zero::cpu {

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

}  // namespace zero::cpu
