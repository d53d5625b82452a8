// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What stands in for cuBLASLt where a GPU is emulated: products as plain loops.
#include "tests/cuda/naive_products.h"

#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/half.h"
#include "ops/cuda/make_ops.h"
#include "ops/cuda/products.h"
#include "tests/cuda/emulator/emulator.h"

namespace zero::cuda {

std::string& naive::version() {
  thread_local std::string one = "1.0.0, of naive loops";
  return one;
}
namespace {

using Epilogue = ProductShape::Epilogue;

float value_at(const void* data, DType dtype, std::int64_t at) {
  if (dtype == DType::bf16) return to_float(static_cast<const bfloat16*>(data)[at]);
  if (dtype == DType::fp16) return to_float(static_cast<const float16*>(data)[at]);
  return static_cast<const float*>(data)[at];
}

void put(void* data, DType dtype, std::int64_t at, float value) {
  if (dtype == DType::bf16) {
    static_cast<bfloat16*>(data)[at] = to_bfloat16(value);
  } else if (dtype == DType::fp16) {
    static_cast<float16*>(data)[at] = to_float16(value);
  } else {
    static_cast<float*>(data)[at] = value;
  }
}

float element(const void* data, DType dtype, MatrixPlacement placement, std::int64_t row,
              std::int64_t column, const std::array<std::int64_t, 3>& size) {
  const auto [rows, columns, leading] = size;
  const bool plain = placement == MatrixPlacement::plain;
  const std::int64_t stride = leading != 0 ? leading : plain ? columns : rows;
  return value_at(data, dtype, plain ? row * stride + column : column * stride + row);
}

constexpr double kSlope = 0.7978845608028654;  // of GPT-2's gelu
double bend(double z) { return std::tanh(kSlope * (z + 0.044715 * z * z * z)); }
double gelu(double z) { return z / 2 * (1 + bend(z)); }

// What becomes of one element of the product.
float finish(const ProductShape& s, const Products::Operands& o, float product, std::int64_t column,
             std::int64_t at) {
  switch (s.epilogue) {
    case Epilogue::bias:
      return product + value_at(o.bias, s.in, column);
    case Epilogue::gelu: {
      const float z = product + value_at(o.bias, s.in, column);
      put(o.aux, s.out, at, z);
      return static_cast<float>(gelu(z));
    }
    default:
      return s.write == Write::add ? product + value_at(o.c, s.out, at) : product;
  }
}

void multiply(const ProductShape& s, const Products::Operands& o) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) {
        sum += element(o.a, s.in, s.a, i, l, {s.m, s.k, s.lda}) *
               element(o.b, s.in, s.b, l, j, {s.k, s.n, s.ldb});
      }
      const std::int64_t at = i * (s.ldc == 0 ? s.n : s.ldc) + j;
      put(o.c, s.out, at, finish(s, o, sum, j, at));
    }
  }
}

// The sums of A's rows or B's columns.
void sum_operand(const ProductShape& s, const Products::Operands& o) {
  const bool rows = s.epilogue == Epilogue::row_sums;
  for (std::int64_t i = 0; i < (rows ? s.m : s.n); ++i) {
    float sum = 0;
    for (std::int64_t l = 0; l < s.k; ++l) {
      sum += rows ? element(o.a, s.in, s.a, i, l, {s.m, s.k, s.lda})
                  : element(o.b, s.in, s.b, l, i, {s.k, s.n, s.ldb});
    }
    put(o.bias, s.out, i, sum);
  }
}

bool sums_operand(const ProductShape& s) {
  return s.epilogue == Epilogue::row_sums || s.epilogue == Epilogue::column_sums;
}

std::string name_of(const ProductShape& s) {
  return s.epilogue == Epilogue::none || s.epilogue == Epilogue::bias ? "product" : "fused product";
}

class NaiveProducts final : public Products {
 public:
  void prepare(const ProductShape& shape) override { prepared_.insert(shape); }
  // As a library: one type, auxiliary matrices have rows of multiples of 8 elements, and all is
  // aligned.
  bool takes(const ProductShape& shape, const Operands& o) const override {
    const auto aligned = [](const void* data) {
      return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    };
    return prepared_.contains(shape) && shape.in == shape.out && aligned(o.a) && aligned(o.b) &&
           aligned(o.c) && aligned(o.bias) && aligned(o.aux) &&
           (sums_operand(shape) || shape.n % 8 == 0);
  }
  std::int64_t scratch_bytes() const override { return 0; }
  void run(cudaStream_t stream, const ProductShape& shape, const Operands& operands) override {
    ZERO_CHECK(prepared_.contains(shape), "a product was not prepared; prepare() its shape");
    ZERO_CHECK(shape.epilogue == Epilogue::none || shape.in == shape.out,
               "a library adds no {} bias to {}", name_of(shape.in), name_of(shape.out));
    const cudaError_t status = emulated::enqueue(stream, name_of(shape), [shape, operands] {
      multiply(shape, operands);
      if (sums_operand(shape)) sum_operand(shape, operands);
    });
    ZERO_CHECK(status == cudaSuccess, "the emulator refuses a product");
  }

 private:
  std::set<ProductShape> prepared_;
};

}  // namespace

std::string cublaslt_version() { return naive::version(); }

std::unique_ptr<Products> make_products(Device& /*device*/) {
  return std::make_unique<NaiveProducts>();
}

}  // namespace zero::cuda
