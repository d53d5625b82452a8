// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <functional>
#include <memory>
#include <string_view>

#include "device/host_access.h"
#include "ops/cuda/pass_tables.h"
#include "ops/cuda/products.h"
#include "ops/inference_ops.h"

namespace zero::cuda {

/// InferenceOps on a CUDA device. Plain weights are stored as files hold them and multiplied by the
/// vendor's library, kProductRows rows at a time: kernels that the library would choose for other
/// numbers of rows may add in another order. Codes are multiplied by our own kernels.
class CudaInferenceOps final : public InferenceOps {
 public:
  explicit CudaInferenceOps(Device& device);

  std::int64_t weight_bytes(const WeightShape& shape) const override;
  /// One column block: weights are not cut, because several ranks answer on CPUs.
  WeightCut weight_cut(const WeightShape& shape) const override {
    return {shape.out, {weight_bytes(shape)}};
  }
  void pack(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
            View weight) override;
  void pack(const QuantizedRows& rows, View weight) override;
  void prepare(const WeightShape& shape, std::int64_t rows) override;
  void prepare(const PassLimits& limits) override;
  void allocate_scratch() override;
  std::int64_t padded_rows(std::int64_t rows) const override {
    return round_up(rows, kProductRows);
  }
  void linear(const WeightShape& shape, std::int64_t rows, View x, View weight, View bias,
              View y) override;
  std::optional<PassSizes> begin(const PassRows& pass) override {
    return tables_.upload(pass).sizes();
  }
  void embed(const WeightShape& shape, View weight, View x) override;
  void take_rows(RowList list, View from, std::int64_t width, View to) override;
  void append(const CachedAttention& operands) override;
  void attend(const CachedAttention& operands) override;

 private:
  // The rows of a tile of Hopper's tensor cores. A weight is read once for a tile, which takes
  // longer than the tile's products of 16-bit types.
  static constexpr std::int64_t kProductRows = 64;

  void submit(std::string_view what, std::function<void(cudaStream_t)> work);
  void multiply(const WeightShape& shape, std::int64_t rows, const Products::Operands& operands,
                DType out);

  Device& device_;
  std::unique_ptr<Products> products_;
  HostAccess host_access_;
  PassLimits limits_;
  PassTables tables_;
  Buffer product_scratch_;
  Buffer parts_;
};

}  // namespace zero::cuda
