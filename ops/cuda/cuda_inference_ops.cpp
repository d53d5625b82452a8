// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <driver_types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "device/cuda/stream.h"
#include "device/host_access.h"
#include "ops/cuda/code_places.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/make_ops.h"
#include "ops/cuda/pass_tables.h"
#include "ops/cuda/products.h"
#include "ops/inference_ops.h"
#include "ops/quantized_rows.h"

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

/// Stores bytes of a stored weight (CodePlaces) from byte `begin` on.
using StoreBytes = std::function<void(std::int64_t begin, std::span<const std::byte> bytes)>;

static_assert(kRangeColumns == kTile && kScaleBlockGroups == kGroupsOfRange);

/// What some columns hold of a scale block.
struct ScaleBlock {
  std::int64_t index = 0;
  std::vector<std::byte> codes{}, scales{}, ranges{};
};

/// Packs 32 columns at a time.
class Packing {
 public:
  explicit Packing(const QuantizedRows& rows)
      : rows_(rows), places_(rows.shape.format, rows.shape.in, rows.shape.out) {
    const std::int64_t depth = places_.scale_block_depth();
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    for (std::int64_t i = rows.depth_begin() / depth; i * depth < rows.depth_end(); ++i) {
      ScaleBlock& scale_block = scale_blocks_.emplace_back(ScaleBlock{i});
      scale_block.codes.resize(bytes(rows.columns() * places_.column_bytes(i)));
      scale_block.scales.resize(
          bytes(rows.columns() * places_.groups_of_scale_block() * places_.scale_bytes()));
      if (!rows.ranges.empty()) scale_block.ranges.resize(bytes(blocks()) * sizeof(ScaleRange));
    }
  }

  std::int64_t blocks() const { return div_ceil(rows_.columns(), kTile); }
  void pack(std::int64_t block) {
    const std::int64_t begin = rows_.column_begin() + block * kTile;
    const std::int64_t end = std::min(rows_.column_end(), begin + kTile);
    for (ScaleBlock& scale_block : scale_blocks_) {
      for (std::int64_t column = begin; column < end; ++column) {
        pack_codes_of(scale_block, column);
        pack_scales_of(scale_block, column);
      }
      if (scale_block.ranges.empty()) continue;
      std::memcpy(scale_block.ranges.data() + static_cast<std::size_t>(block) * sizeof(ScaleRange),
                  &rows_.ranges[rows_.range_at(scale_block.index, begin)], sizeof(ScaleRange));
    }
  }

  void store(const StoreBytes& store) const {
    const std::int64_t column = rows_.column_begin();
    for (const ScaleBlock& scale_block : scale_blocks_) {
      store(places_.code(column, scale_block.index * places_.scale_block_depth()),
            scale_block.codes);
      store(places_.scale(column, scale_block.index * places_.groups_of_scale_block()),
            scale_block.scales);
      if (scale_block.ranges.empty()) continue;
      store(places_.range(column, scale_block.index), scale_block.ranges);
    }
  }

 private:
  void pack_codes_of(ScaleBlock& scale_block, std::int64_t column) const {
    const std::int64_t begin = scale_block.index * places_.scale_block_depth();
    const std::int64_t end = std::min(rows_.shape.in, begin + places_.scale_block_depth());
    std::byte* const to = scale_block.codes.data() +
                          (column - rows_.column_begin()) * places_.column_bytes(scale_block.index);
    for (std::int64_t depth = begin; depth < end; ++depth) {
      const auto code = static_cast<std::byte>(rows_.codes[rows_.element_at(depth, column)]);
      if (rows_.shape.format == WeightFormat::int8) {
        to[depth - begin] = code;
      } else {
        to[(depth - begin) / 2] |= code << (depth % 2 * 4);
      }
    }
  }
  void pack_scales_of(ScaleBlock& scale_block, std::int64_t column) const {
    const std::int64_t groups = places_.groups_of_scale_block();
    const std::int64_t begin = scale_block.index * groups;
    const auto bytes = static_cast<std::size_t>(places_.scale_bytes());
    std::byte* to = scale_block.scales.data() +
                    static_cast<std::size_t>((column - rows_.column_begin()) * groups) * bytes;
    for (std::int64_t i = begin; i < std::min(begin + groups, rows_.group_end());
         ++i, to += bytes) {
      std::memcpy(to, rows_.scales.data() + rows_.scale_at(i, column), bytes);
    }
  }

  const QuantizedRows& rows_;
  CodePlaces places_;
  std::vector<ScaleBlock> scale_blocks_;
};

/// InferenceOps::pack of codes: stores all bytes that these rows make, on `threads` host threads.
void pack_codes(const QuantizedRows& rows, int threads, const StoreBytes& store) {
  Packing packing(rows);
  cpu::parallel_for(threads, packing.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) packing.pack(block);
  });
  packing.store(store);
}

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
  void linear(const StoredWeight& weight, std::int64_t rows, View x, View bias, View y) override;
  std::optional<PassSizes> begin(const PassRows& pass) override {
    return tables_.upload(pass).sizes();
  }
  void embed(const StoredWeight& weight, View x) override;
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

CudaInferenceOps::CudaInferenceOps(Device& device)
    : device_(device), products_(make_products(device)), host_access_(device) {}

void CudaInferenceOps::submit(std::string_view what, std::function<void(cudaStream_t)> work) {
  Stream& stream = device_.compute();
  stream.submit(what, [&stream, work = std::move(work)] { work(native(stream)); });
}

std::int64_t CudaInferenceOps::weight_bytes(const WeightShape& shape) const {
  if (plain(shape)) return checked_mul(checked_mul(shape.in, shape.out), size_of(shape.dtype));
  check_format_on_gpu(shape.format, device_.name());
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

void CudaInferenceOps::linear(const StoredWeight& weight, std::int64_t rows, View x, View bias,
                              View y) {
  const WeightShape& shape = weight.shape;
  if (!plain(shape)) {
    return submit("linear", [=](cudaStream_t stream) {
      multiply_codes(stream, weight.shape, {rows, x, weight.values, bias, y});
    });
  }
  ZERO_CHECK(bias.empty() || y.dtype() == shape.dtype,
             "linear: a bias with results of {}; expected the weight's {}", name_of(y.dtype()),
             name_of(shape.dtype));
  multiply(shape, rows,
           {.a = x.data(),
            .b = weight.values.data(),
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

void CudaInferenceOps::embed(const StoredWeight& weight, View x) {
  submit("embed", [=, this](cudaStream_t stream) {
    cuda::embed(stream, weight.shape, tables_.pass(), weight.values, x);
  });
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

}  // namespace

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  return std::make_unique<CudaInferenceOps>(device);
}

}  // namespace zero::cuda
