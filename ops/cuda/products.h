// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "ops/product_shape.h"

namespace zero::cuda {

/// Matrix products on a CUDA stream: sums in fp32 (fp32 operands are not rounded to TF32), operands
/// of epilogues only of C's dtype. Ignores triangles, which only the CPU exploits. The same shape
/// and operands give the same bits on GPUs of one type, at all addresses that are multiples of 16
/// bytes.
class Products {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* bias = nullptr;  ///< of the epilogue, like aux
    void* aux = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };

  virtual ~Products() = default;
  Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Chooses the kernel for `shape`, once; on a planning device only notes the shape. Throws
  /// zero::Error, with the shape, if there is no kernel, unless takes() may report that.
  virtual void prepare(const ProductShape& shape) = 0;
  /// Whether there is a kernel, fast enough to use, for these operands of a product whose epilogue
  /// does more than add a bias.
  virtual bool takes(const ProductShape& shape, const Operands& operands) const = 0;
  /// Bytes of scratch that suffice for any product: the same on a planning device.
  virtual std::int64_t scratch_bytes() const = 0;
  /// Enqueues a product of a shape that was prepared; throws zero::Error otherwise. The first of a
  /// shape, if the stream is not captured, tries the library's kernels on the operands, waits for
  /// them, and keeps the fastest of those that give the same bits.
  virtual void run(cudaStream_t stream, const ProductShape& shape, const Operands& operands) = 0;
};

/// cuBLASLt's.
std::unique_ptr<Products> make_products(Device& device);

}  // namespace zero::cuda
