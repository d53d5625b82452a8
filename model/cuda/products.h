// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "model/product_shape.h"

namespace zero::cuda {

/// Products of matrices on a CUDA stream: sums in fp32 (fp32 operands are not rounded to TF32),
/// operands of epilogues of the type of C alone. Triangles are the CPU's business. The same shape
/// and operands give the same bits on GPUs of one type, at whatever multiples of 16 bytes the
/// operands lie.
class Products {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* bias = nullptr;  ///< of the epilogue, as aux is
    void* aux = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };

  virtual ~Products() = default;
  Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Chooses how `shape` is to be computed, once; on a planning device notes it only. Throws
  /// zero::Error, with the shape, if there is no kernel, unless takes() may say so.
  virtual void prepare(const ProductShape& shape) = 0;
  /// Whether there is a kernel, and one worth taking, for the operands of a product whose epilogue
  /// does more than add a bias.
  virtual bool takes(const ProductShape& shape, const Operands& operands) const = 0;
  /// Scratch that any product takes: the same on a planning device.
  virtual std::int64_t scratch_bytes() const = 0;
  /// Enqueues a product of a shape that was prepared; throws zero::Error otherwise.
  virtual void run(cudaStream_t stream, const ProductShape& shape, const Operands& operands) = 0;
};

/// cuBLASLt's.
std::unique_ptr<Products> make_products(Device& device);

}  // namespace zero::cuda
