// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "model/product_shape.h"

namespace zero::cpu {

/// One product of one shape, made ready. Not for two threads at once.
class Product {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };
  virtual ~Product() = default;
  virtual void run(const Operands& operands) = 0;
  virtual std::int64_t scratch_bytes() const = 0;
};

/// Which kernels the processor's products of `dtype` are made of: "tiles", "pairs", "floats".
std::string_view name_of_kernels(DType dtype);

/// Makes products for a fixed number of threads, each shape once, by the kernels that the processor
/// has for their dtype (see packed_kernels.h). The scratch of each product is the caller's. Same
/// shape, same bits on any rank, with any number of threads and however rows are cut.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// The product of `shape`, made now if it is new. Valid as long as this.
  Product& get(const ProductShape& shape);
  /// The largest scratch of the products made so far.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  int threads_;
  std::map<ProductShape, std::unique_ptr<Product>> made_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace zero::cpu
