// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/products.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "model/cpu/packed_product.h"

namespace zero::cpu {
namespace {

// oneDNN asks OpenMP how many threads it may use; the setting belongs to the calling thread.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ScopedThreads() { omp_set_num_threads(before_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
};

// oneDNN's word: it asks the system for AMX, and users limit it (ONEDNN_MAX_CPU_ISA).
std::optional<MatrixUnit> matrix_unit() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa wanted) {
    return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  if (has(dnnl::cpu_isa::avx512_core_amx)) return MatrixUnit::amx;
  if (has(dnnl::cpu_isa::avx512_core_bf16)) return MatrixUnit::avx512_bf16;
  return std::nullopt;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, Placement placement,
                          std::int64_t leading, DType dtype) {
  const bool plain = placement == Placement::plain;
  if (leading == 0) leading = plain ? columns : rows;
  const dnnl::memory::dims strides =
      plain ? dnnl::memory::dims{leading, 1} : dnnl::memory::dims{1, leading};
  return {{rows, columns}, type_of(dtype), strides};
}

dnnl::matmul::primitive_desc describe(const ProductShape& s, const dnnl::engine& engine) {
  const auto a = matrix(s.m, s.k, s.a, s.lda, s.in);
  const auto b = matrix(s.k, s.n, s.b, s.ldb, s.in);
  const auto c = matrix(s.m, s.n, Placement::plain, s.ldc, s.out);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.write == Write::add) {
    dnnl::post_ops after;
    after.append_sum(1.0F);
    attributes.set_post_ops(after);
  }
  const bool biased = s.bias == ProductShape::Bias::row;
  const auto bias = matrix(1, s.n, Placement::plain, 0, s.in);
#if DNNL_VERSION_MAJOR < 3
  const auto operation = biased ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {operation, attributes, engine};
#else
  return biased ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#endif
}

class DnnlProduct final : public Product {
 public:
  DnnlProduct(const dnnl::matmul::primitive_desc& description, const dnnl::engine& engine,
              dnnl::stream& stream, int threads)
      : primitive_(description), stream_(stream), threads_(threads) {
    const auto empty = [&](const dnnl::memory::desc& d) {
      return dnnl::memory(d, engine, nullptr);
    };
    memories_ = {empty(description.src_desc()), empty(description.weights_desc()),
                 empty(description.dst_desc())};
    arguments_ = {{DNNL_ARG_SRC, memories_[0]},
                  {DNNL_ARG_WEIGHTS, memories_[1]},
                  {DNNL_ARG_DST, memories_[2]}};
    scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    if (scratch_bytes_ > 0) {
      scratch_ = empty(description.scratchpad_desc());
      arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratch_);
    }
    const dnnl::memory::desc bias = description.bias_desc();
    if (bias.get_size() > 0) {
      bias_ = empty(bias);
      arguments_.emplace(DNNL_ARG_BIAS, bias_);
    }
  }

  void run(const Operands& operands) override {
    memories_[0].set_data_handle(const_cast<void*>(operands.a));
    memories_[1].set_data_handle(const_cast<void*>(operands.b));
    memories_[2].set_data_handle(operands.c);
    if (bias_) bias_.set_data_handle(const_cast<void*>(operands.bias));
    if (scratch_) scratch_.set_data_handle(operands.scratch);
    const ScopedThreads threads(threads_);
    try {
      primitive_.execute(stream_, arguments_);
      stream_.wait();
    } catch (const dnnl::error& error) {
      fail("oneDNN could not run a product: {}", error.what());
    }
  }

  std::int64_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  dnnl::matmul primitive_;
  dnnl::stream& stream_;
  int threads_;
  std::array<dnnl::memory, 3> memories_;
  dnnl::memory scratch_;
  dnnl::memory bias_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace

struct Products::Library {
  explicit Library(int count)
      : threads(count), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}
  int threads;
  dnnl::engine engine;
  dnnl::stream stream;
};

Products::Products(int threads) : library_(std::make_unique<Library>(threads)) {}
Products::~Products() = default;

std::unique_ptr<Product> Products::make(const ProductShape& shape) {
  if (const auto unit = matrix_unit(); unit && shape.in == DType::bf16) {
    auto product = make_packed_product(shape, library_->threads, *unit);
    if (product != nullptr) return product;
  }
  const ScopedThreads threads(library_->threads);
  try {
    return std::make_unique<DnnlProduct>(describe(shape, library_->engine), library_->engine,
                                         library_->stream, library_->threads);
  } catch (const dnnl::error& error) {
    fail(
        "oneDNN has no product ({} x {}) * ({} x {}) of {} on this machine: {}; bf16 needs "
        "AVX-512, use fp32 without it",
        shape.m, shape.k, shape.k, shape.n, name_of(shape.in), error.what());
  }
}

Product& Products::get(const ProductShape& shape) {
  auto& slot = made_[shape];
  if (!slot) {
    slot = make(shape);
    scratch_bytes_ = std::max(scratch_bytes_, slot->scratch_bytes());
  }
  return *slot;
}

}  // namespace zero::cpu
