// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/cuda/capacity.h"
#include "device/cuda/check.h"
#include "device/cuda/handles.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/make_ops.h"
#include "ops/cuda/product_trials.h"
#include "ops/cuda/products.h"

namespace zero::cuda {
namespace {

using Epilogue = ProductShape::Epilogue;

// cuBLAS's own default for Hopper; also the most that its kernels there may request.
constexpr std::int64_t kWorkspace = 32LL << 20;
constexpr std::uint32_t kAligned = 16;   // bytes: alignment that the fastest kernels need
constexpr std::int64_t kAuxColumns = 8;  // an auxiliary matrix's rows are multiples of this
constexpr int kKernels = 8;              // that are tried for a product, of the library's first
constexpr int kTrialRuns = 3;            // of each; the fastest counts

void check(cublasStatus_t status, std::string_view what,
           std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail("cuda: {}: cuBLASLt says {} at {}:{}", what, cublaslt().status_string(status),
       where.file_name(), where.line());
}

template <class T, auto destroy>
using LtHandle = Handle<T, [](T value) { return (cublaslt().*destroy)(value); }>;
using LibraryHandle = LtHandle<cublasLtHandle_t, &CublasLt::destroy>;
using ProductHandle = LtHandle<cublasLtMatmulDesc_t, &CublasLt::destroy_product>;
using LayoutHandle = LtHandle<cublasLtMatrixLayout_t, &CublasLt::destroy_layout>;
using PreferenceHandle = LtHandle<cublasLtMatmulPreference_t, &CublasLt::destroy_preference>;

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

std::string text_of(const ProductShape& s) {
  const auto mark = [](MatrixPlacement placement) {
    return placement == MatrixPlacement::plain ? "" : "^T";
  };
  return fmt::format("a product ({} x {}){} ({} x {}){} of {} into {}{}", s.m, s.k, mark(s.a), s.k,
                     s.n, mark(s.b), name_of(s.in), name_of(s.out),
                     s.epilogue == Epilogue::none   ? ""
                     : s.epilogue == Epilogue::bias ? " with bias"
                                                    : " with an epilogue");
}

// To cuBLAS, our B is A, our A is B, and our columns of C are rows.
cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::row_sums:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::column_sums:
      return CUBLASLT_EPILOGUE_BGRADA;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_aux(const ProductShape& s) { return s.epilogue == Epilogue::gelu; }

// Products that the library may lack: their callers have a fallback.
bool is_optional(const ProductShape& s) {
  return s.epilogue != Epilogue::none && s.epilogue != Epilogue::bias;
}

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublaslt().set_product(product, attribute, &value, sizeof value), "product");
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublaslt().set_preference(preference, attribute, &value, sizeof value), "preference");
}

// `leading`: elements between columns; 0: rows.
LayoutHandle layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
  LayoutHandle handle;
  check(
      cublaslt().create_layout(handle.put(), type_of(dtype), static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(columns), leading == 0 ? rows : leading),
      "layout of a matrix");
  return handle;
}

// A row-major matrix of (rows, columns) is, to column-major cuBLAS, its transpose.
LayoutHandle transposed_layout(DType dtype, MatrixPlacement placement, std::int64_t rows,
                               std::int64_t columns, std::int64_t leading) {
  return placement == MatrixPlacement::plain ? layout(dtype, columns, rows, leading)
                                             : layout(dtype, rows, columns, leading);
}

cublasOperation_t operation(MatrixPlacement placement) {
  return placement == MatrixPlacement::plain ? CUBLAS_OP_N : CUBLAS_OP_T;
}

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kAligned == 0; }
bool aligned(const Products::Operands& o) {
  return aligned(o.a) && aligned(o.b) && aligned(o.c) && aligned(o.bias) && aligned(o.aux);
}

/// One shape: C^T = B^T A^T, and the kernels for it.
class Plan {
 public:
  Plan(cublasLtHandle_t library, const ProductShape& s)
      : shape_(s),
        left_(transposed_layout(s.in, s.b, s.k, s.n, s.ldb)),
        right_(transposed_layout(s.in, s.a, s.m, s.k, s.lda)),
        result_(layout(s.out, s.n, s.m, s.ldc)) {
    check(cublaslt().create_product(product_.put(), CUBLAS_COMPUTE_32F, CUDA_R_32F), text_of(s));
    set(product_.get(), CUBLASLT_MATMUL_DESC_TRANSA, operation(s.b));
    set(product_.get(), CUBLASLT_MATMUL_DESC_TRANSB, operation(s.a));
    set(product_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s.epilogue));
    if (has_aux(s)) set(product_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
    fast_ = kernels(library, kAligned, kKernels);
    std::erase_if(fast_, [&](const Kernel& each) { return order_of(each) != order_of(fast_[0]); });
    untried_ = fast_.size() > 1 && s.write == Write::overwrite;  // a trial may be repeated
    if (is_optional(s)) return;
    const std::vector<Kernel> any = kernels(library, static_cast<std::uint32_t>(size_of(s.in)), 1);
    ZERO_CHECK(!any.empty(), "cuda: cuBLASLt has no kernel for {}", text_of(s));
    any_ = any.front();
  }

  /// If there is no kernel even for these operands, there is no fallback.
  bool takes(const Products::Operands& o) const { return any_ || (!fast_.empty() && aligned(o)); }

  void run(cublasLtHandle_t library, cudaStream_t stream, const Products::Operands& o) {
    ZERO_CHECK(takes(o), "cuda: cuBLASLt has no kernel for {} on these operands; ask takes() first",
               text_of(shape_));
    const bool fast = !fast_.empty() && aligned(o);
    if (fast && untried_ && !is_captured(stream)) take_fastest(library, stream, o);
    check(multiply(library, stream, o, fast ? fast_.front() : *any_), text_of(shape_));
  }

 private:
  using Kernel = cublasLtMatmulAlgo_t;

  /// What decides the order in which a kernel adds. Equal results of one trial do not: rounded to
  /// 16 bits, the sums of a small product in two orders often agree.
  static std::array<std::int64_t, 5> order_of(const Kernel& kernel) {
    const auto attribute = [&](cublasLtMatmulAlgoConfigAttributes_t which, std::size_t size) {
      std::int64_t value = 0;
      check(cublaslt().kernel_attribute(&kernel, which, &value, size, nullptr), "attribute");
      return value;
    };
    return {attribute(CUBLASLT_ALGO_CONFIG_ID, 4), attribute(CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
            attribute(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
            attribute(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
            attribute(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2)};
  }

  cublasStatus_t multiply(cublasLtHandle_t library, cudaStream_t stream,
                          const Products::Operands& o, const Kernel& kernel) {
    point_to(o.bias, o.aux);
    const float one = 1;
    const float kept = shape_.write == Write::add ? 1.0F : 0.0F;
    return cublaslt().matmul(library, product_.get(), &one, o.b, left_.get(), o.a, right_.get(),
                             &kept, o.c, result_.get(), o.c, result_.get(), &kernel, o.scratch,
                             static_cast<std::size_t>(kWorkspace), stream);
  }

  // The library's order is a guess: here others are up to a quarter faster. They are tried on the
  // first operands, which the host waits for.
  void take_fastest(cublasLtHandle_t library, cudaStream_t stream, const Products::Operands& o) {
    untried_ = false;
    std::vector<Kernel> run;
    std::vector<ProductTrial> trials;
    for (const Kernel& kernel : fast_) {
      const std::optional<double> seconds = seconds_of(library, stream, o, kernel);
      if (!seconds && run.empty()) return;  // run() reports why
      if (!seconds) continue;
      run.push_back(kernel);
      trials.push_back({*seconds, bits_of(stream, o)});
    }
    fast_ = {run[fastest_of_equals(trials)]};
  }

  std::optional<double> seconds_of(cublasLtHandle_t library, cudaStream_t stream,
                                   const Products::Operands& o, const Kernel& kernel) {
    EventHandle begin;
    EventHandle end;
    cuda::check(cudaEventCreate(begin.put()), "create an event");
    cuda::check(cudaEventCreate(end.put()), "create an event");
    float least = 0;  // milliseconds
    for (int i = 0; i <= kTrialRuns; ++i) {
      cuda::check(cudaEventRecord(begin.get(), stream), "record an event");
      if (multiply(library, stream, o, kernel) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
      cuda::check(cudaEventRecord(end.get(), stream), "record an event");
      cuda::check(cudaEventSynchronize(end.get()), "wait for a product");
      float taken = 0;
      cuda::check(cudaEventElapsedTime(&taken, begin.get(), end.get()), "time a product");
      if (i > 0) least = i == 1 ? taken : std::min(least, taken);  // the first loads the kernel
    }
    return least * 1e-3;
  }

  // The digest of all that a product has written. Columns of C beyond the product's are as they
  // were.
  std::uint64_t bits_of(cudaStream_t stream, const Products::Operands& o) const {
    const ProductShape& s = shape_;
    const std::int64_t size = size_of(s.out);
    const std::int64_t leading = s.ldc == 0 ? s.n : s.ldc;
    std::uint64_t bits = digest(stream, o.c, ((s.m - 1) * leading + s.n) * size, o.scratch);
    if (has_aux(s)) bits += 3 * digest(stream, o.aux, s.m * s.n * size, o.scratch);
    const bool sums = s.epilogue == Epilogue::row_sums || s.epilogue == Epilogue::column_sums;
    const std::int64_t count = s.epilogue == Epilogue::row_sums ? s.m : s.n;
    if (sums) bits += 5 * digest(stream, o.bias, count * size, o.scratch);
    return bits;
  }

  static bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cuda::check(cudaStreamIsCapturing(stream, &status), "ask whether a stream is captured");
    return status != cudaStreamCaptureStatusNone;
  }

  // The operands of the epilogue, if any.
  void point_to(const void* bias, const void* aux) {
    if (shape_.epilogue != Epilogue::none) {
      set(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (has_aux(shape_)) set(product_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }

  /// The library's first kernels for operands of an alignment, `most` at most.
  std::vector<Kernel> kernels(cublasLtHandle_t library, std::uint32_t alignment, int most) {
    // Here, too, only the alignment matters; run() sets the addresses.
    const auto* const somewhere = reinterpret_cast<const void*>(std::uintptr_t{alignment});
    point_to(somewhere, somewhere);
    PreferenceHandle preference;
    check(cublaslt().create_preference(preference.put()), "preference");
    set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(kWorkspace));
    // Split-K sums may be reduced in the workspace, in fp32 and in a fixed order; not in place in
    // C.
    set(preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(preference.get(), operand, alignment);
    }
    std::array<cublasLtMatmulHeuristicResult_t, kKernels> found{};
    int count = 0;
    const cublasStatus_t status =
        cublaslt().heuristic(library, product_.get(), left_.get(), right_.get(), result_.get(),
                             result_.get(), preference.get(), most, found.data(), &count);
    const bool unknown = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                         (status == CUBLAS_STATUS_INVALID_VALUE && is_optional(shape_));
    if (unknown || count == 0) {
      require_room_for_kernels(text_of(shape_));  // other operations have other bits
      return {};
    }
    check(status, text_of(shape_));
    std::vector<Kernel> all;
    for (int i = 0; i < count; ++i) all.push_back(found.at(static_cast<std::size_t>(i)).algo);
    return all;
  }

  ProductShape shape_;
  ProductHandle product_;
  LayoutHandle left_;
  LayoutHandle right_;
  LayoutHandle result_;
  std::vector<Kernel> fast_;  // for aligned operands; the first is used
  bool untried_ = false;
  std::optional<Kernel> any_;
};

class CublasLtProducts final : public Products {
 public:
  explicit CublasLtProducts(const Device& device) : planned_only_(!device.has_memory()) {
    if (planned_only_) return;
    check(cublaslt().create(library_.put()), "opening cuBLASLt");
    int index = 0;
    cuda::check(cudaGetDevice(&index), "ask for the current device");
    cuda::check(cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, index),
                "ask for the compute capability");
  }

  void prepare(const ProductShape& shape) override {
    asked_ = true;
    if (planned_only_ || (is_optional(shape) && !is_worthwhile(shape))) return;
    plans_.try_emplace(shape, library_.get(), shape);
  }
  bool takes(const ProductShape& shape, const Operands& operands) const override {
    const auto plan = plans_.find(shape);
    return plan != plans_.end() && plan->second.takes(operands);
  }
  std::int64_t scratch_bytes() const override { return asked_ ? kWorkspace : 0; }
  void run(cudaStream_t stream, const ProductShape& shape, const Operands& operands) override {
    const auto plan = plans_.find(shape);
    ZERO_CHECK(plan != plans_.end(), "cuda: {} was not prepared; prepare() its shape",
               text_of(shape));
    plan->second.run(library_.get(), stream, operands);
  }

 private:
  // On earlier GPUs, on display GPUs, and in fp32, cuBLASLt appends a separate pass to the product,
  // slower than ours (llm.c's pull requests 338, 591 and 653, sglang's 28168 and 34350).
  bool is_worthwhile(const ProductShape& shape) const {
    const bool aux_fits = !has_aux(shape) || shape.n % kAuxColumns == 0;
    const bool halves = shape.in != DType::fp32 && shape.out == shape.in;
    return (major_ == 9 || major_ == 10) && halves && aux_fits;
  }

  bool planned_only_;
  bool asked_ = false;
  int major_ = 0;  // of the device's compute capability
  LibraryHandle library_;
  std::map<ProductShape, Plan> plans_;
};

}  // namespace

std::string cublaslt_version() try {
  const std::size_t number = cublaslt().version();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
} catch (const Error& error) {
  return error.what();
}

std::unique_ptr<Products> make_products(Device& device) {
  return std::make_unique<CublasLtProducts>(device);
}

}  // namespace zero::cuda
