// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What stands in for the vendor's libraries where a GPU is emulated: products as plain loops. There
// is no cuDNN (model/cuda/attention_unavailable.cpp).
#include <set>

#include "base/half.h"
#include "model/cuda/products.h"
#include "tests/cuda/emulator/emulator.h"

namespace zero::cuda {
namespace {

float value_at(const void* data, DType dtype, std::int64_t at) {
  return dtype == DType::bf16 ? to_float(static_cast<const bfloat16*>(data)[at])
                              : static_cast<const float*>(data)[at];
}

void multiply(const ProductShape& s, const Products::Operands& o) {
  const auto index = [](MatrixPlacement placement, std::int64_t row, std::int64_t column,
                        std::int64_t rows, std::int64_t columns) {
    return placement == MatrixPlacement::plain ? row * columns + column : column * rows + row;
  };
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) {
        sum += value_at(o.a, s.in, index(s.a, i, l, s.m, s.k)) *
               value_at(o.b, s.in, index(s.b, l, j, s.k, s.n));
      }
      const std::int64_t at = i * s.n + j;
      if (s.bias == ProductShape::Bias::row) sum += value_at(o.bias, s.in, j);
      if (s.write == Write::add) sum += value_at(o.c, s.out, at);
      if (s.out == DType::bf16) {
        static_cast<bfloat16*>(o.c)[at] = to_bfloat16(sum);
      } else {
        static_cast<float*>(o.c)[at] = sum;
      }
    }
  }
}

class NaiveProducts final : public Products {
 public:
  void prepare(const ProductShape& shape) override { prepared_.insert(shape); }
  std::int64_t scratch_bytes() const override { return 0; }
  void run(cudaStream_t stream, const ProductShape& shape, const Operands& operands) override {
    ZERO_CHECK(prepared_.contains(shape), "a product was not prepared; prepare() its shape");
    ZERO_CHECK(shape.bias == ProductShape::Bias::none || shape.in == shape.out,
               "a library adds no {} bias to {}", name_of(shape.in), name_of(shape.out));
    const cudaError_t status =
        emulated::enqueue(stream, "product", [shape, operands] { multiply(shape, operands); });
    ZERO_CHECK(status == cudaSuccess, "the emulator refuses a product");
  }

 private:
  std::set<ProductShape> prepared_;
};

}  // namespace

std::unique_ptr<Products> make_products(Device& /*device*/) {
  return std::make_unique<NaiveProducts>();
}

}  // namespace zero::cuda
