// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cuda_inference_ops.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/error.h"
#include "device/cpu/primitives.h"
#include "device/cuda/stream.h"
#include "ops/cuda/code_places.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/make_inference_ops.h"
#include "ops/cuda/pack_codes.h"

namespace zero::cuda {
namespace {

using Epilogue = ProductShape::Epilogue;

bool plain(const WeightShape& shape) { return shape.format == WeightFormat::plain; }

ProductShape product_of(const WeightShape& s, std::int64_t rows, DType out, Epilogue epilogue) {
  return forward_product(
      {.rows = rows, .in = s.in, .out = s.out, .layout = s.layout, .dtype = s.dtype}, out,
      epilogue);
}

int host_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::byte* row_of(const void* matrix, std::int64_t row, std::int64_t bytes) {
  return static_cast<std::byte*>(const_cast<void*>(matrix)) + row * bytes;
}

}  // namespace

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  return std::make_unique<CudaInferenceOps>(device);
}

CudaInferenceOps::CudaInferenceOps(Device& device)
    : device_(device), products_(make_products(device)), host_access_(device) {}

void CudaInferenceOps::submit(std::string_view what, std::function<void(cudaStream_t)> work) {
  Stream& stream = device_.compute();
  stream.submit(what, [&stream, work = std::move(work)] { work(native(stream)); });
}

std::int64_t CudaInferenceOps::weight_bytes(const WeightShape& shape) const {
  if (plain(shape)) return checked_mul(checked_mul(shape.in, shape.out), size_of(shape.dtype));
  return CodePlaces(shape.format, shape.in, shape.out).bytes();
}

void CudaInferenceOps::pack(const WeightShape& shape, std::int64_t first,
                            std::span<const float> rows, View weight) {
  if (plain(shape)) {
    const auto count = static_cast<std::int64_t>(rows.size());
    const View to = weight.reinterpret(shape.dtype, shape.in * shape.out)
                        .slice(first * shape.file_columns(), count);
    const View from = View::of(rows);
    return host_access_.write(to, [&](std::int64_t begin, const View& values) {
      cpu::convert(from.slice(begin, values.count()), values);
    });
  }
  pack(quantize(shape, first, rows, host_threads()), weight);
}

void CudaInferenceOps::pack(const QuantizedRows& rows, View weight) {
  pack_codes(rows, host_threads(), [&](std::int64_t begin, std::span<const std::byte> bytes) {
    const View to = weight.slice(begin, std::ssize(bytes));
    host_access_.write(to, [&](std::int64_t at, const View& values) {
      std::copy_n(bytes.begin() + at, values.count(), static_cast<std::byte*>(values.data()));
    });
  });
}

void CudaInferenceOps::prepare(const WeightShape& shape, std::int64_t /*rows*/) {
  if (!plain(shape)) return;
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias}) {
    products_->prepare(product_of(shape, kProductRows, shape.dtype, epilogue));
  }
  products_->prepare(product_of(shape, kProductRows, DType::fp32, Epilogue::none));
}

void CudaInferenceOps::prepare(const PassLimits& limits) {
  ZERO_CHECK(limits.cache.head_width <= kMostHeadWidth,
             "attention on {}: heads of {} elements, expected {} at most", device_.name(),
             limits.cache.head_width, kMostHeadWidth);
  ZERO_CHECK(limits.cache.format == CacheFormat::plain,
             "attention on {}: a cache of {}; expected dtype: codes are read on CPUs",
             device_.name(), name_of(limits.cache.format));
  limits_ = limits;
}

void CudaInferenceOps::allocate_scratch() {
  tables_ = PassTables(device_, limits_);
  const auto take = [&](std::int64_t count, DType dtype) {
    return device_.allocate(count, dtype, MemoryClass::activations, "scratch");
  };
  product_scratch_ = take(products_->scratch_bytes(), DType::u8);
  parts_ = take(
      tables_.planner().slots() * limits_.cache.kv_heads * part_floats(limits_.cache.head_width),
      DType::fp32);
}

void CudaInferenceOps::linear(const WeightShape& shape, std::int64_t rows, View x, View weight,
                              View bias, View y) {
  if (!plain(shape)) {
    return submit("linear", [=](cudaStream_t stream) {
      multiply_codes(stream, shape, {rows, x, weight, bias, y});
    });
  }
  ZERO_CHECK(bias.empty() || y.dtype() == shape.dtype,
             "linear: a bias with results of {}; expected the weight's {}", name_of(y.dtype()),
             name_of(shape.dtype));
  multiply(shape, rows,
           {.a = x.data(),
            .b = weight.data(),
            .bias = bias.empty() ? nullptr : bias.data(),
            .c = y.data(),
            .scratch = product_scratch_.view().data()},
           y.dtype());
}

void CudaInferenceOps::multiply(const WeightShape& shape, std::int64_t rows,
                                const Products::Operands& operands, DType out) {
  const ProductShape product = product_of(
      shape, kProductRows, out, operands.bias == nullptr ? Epilogue::none : Epilogue::bias);
  for (std::int64_t row = 0; row < rows; row += kProductRows) {
    Products::Operands tile = operands;
    tile.a = row_of(operands.a, row, shape.in * size_of(shape.dtype));
    tile.c = row_of(operands.c, row, shape.out * size_of(out));
    submit("linear", [=, this](cudaStream_t stream) { products_->run(stream, product, tile); });
  }
}

void CudaInferenceOps::embed(const WeightShape& shape, View weight, View x) {
  submit("embed",
         [=, this](cudaStream_t stream) { cuda::embed(stream, shape, tables_.pass(), weight, x); });
}

void CudaInferenceOps::take_rows(RowList list, View from, std::int64_t width, View to) {
  ZERO_CHECK(
      list != RowList::receive_order,
      "take_rows on {}: rows that other ranks send; expected one rank: several share a model on "
      "CPUs",
      device_.name());
  const DevicePass& pass = tables_.pass();
  const bool positions = list == RowList::positions;
  const RowGather gather{.list = positions ? pass.positions : pass.logit_rows,
                         .count = positions ? pass.rows : pass.logit_count,
                         .width = width,
                         .from = from,
                         .to = to};
  submit("take_rows", [=](cudaStream_t stream) { gather_rows(stream, gather); });
}

void CudaInferenceOps::append(const CachedAttention& operands) {
  submit("append",
         [=, this](cudaStream_t stream) { cuda::append(stream, operands, tables_.pass()); });
}

void CudaInferenceOps::attend(const CachedAttention& operands) {
  submit("attend", [=, this](cudaStream_t stream) {
    cuda::attend(stream, operands, tables_.pass(),
                 {&tables_.planner(), static_cast<float*>(parts_.view().data())});
  });
}

}  // namespace zero::cuda
