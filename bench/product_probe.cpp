// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/product_probe.h"

#include <omp.h>

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>

#include "base/error.h"

namespace zero::bench {
namespace {

using Format = dnnl::memory::format_tag;

/// oneDNN takes OpenMP's number of threads when it makes a product and when it runs it.
class ThreadsForNow {
 public:
  explicit ThreadsForNow(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ThreadsForNow(const ThreadsForNow&) = delete;
  ThreadsForNow& operator=(const ThreadsForNow&) = delete;
  ~ThreadsForNow() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

/// The product and its operands, filled with random numbers: zeros would take less power, and the
/// clock would show it.
struct ProductProbe::Operands {
  Operands(const ProbeShape& shape, DType dtype, Format format)
      : engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    const auto type =
        dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const dnnl::memory::desc a_desc({shape.m, shape.k}, type, format);
    const dnnl::memory::desc b_desc({shape.k, shape.n}, type, format);
    const dnnl::memory::desc c_desc({shape.m, shape.n}, type, format);
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a_desc, b_desc, c_desc),
                                                   engine);
#else
    const dnnl::matmul::primitive_desc description(engine, a_desc, b_desc, c_desc);
#endif
    product = dnnl::matmul(description);
    a = random(description.src_desc(), {shape.m, shape.k});
    b = random(description.weights_desc(), {shape.k, shape.n});
    c = dnnl::memory(description.dst_desc(), engine);
  }

  dnnl::memory random(const dnnl::memory::desc& wanted, const dnnl::memory::dims& dims) {
    const dnnl::memory::desc plain(dims, dnnl::memory::data_type::f32, Format::ab);
    dnnl::memory values(plain, engine);
    auto* const data = static_cast<float*>(values.get_data_handle());
    std::minstd_rand generator(1);
    for (std::int64_t i = 0; i < dims[0] * dims[1]; ++i) {
      data[i] = static_cast<float>(generator()) * 0x1p-30F - 1.0F;
    }
    dnnl::memory packed(wanted, engine);
    dnnl::reorder(values, packed).execute(stream, values, packed);
    stream.wait();
    return packed;
  }

  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::matmul product;
  dnnl::memory a, b, c;
};

void limit_onednn(const Environment& environment) {
  const auto wanted = environment("ZERO_MAX_CPU_ISA");
  if (!wanted) return;
  // Ours would replace oneDNN's, which may be the lower one.
  for (const char* const other : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    ZERO_CHECK(!environment(other),
               "ZERO_MAX_CPU_ISA and {} are both set; set ZERO_MAX_CPU_ISA alone, which limits "
               "oneDNN too",
               other);
  }
  const std::map<std::string_view, dnnl::cpu_isa> limits{
      {"AVX2", dnnl::cpu_isa::avx2},
      {"AVX512", dnnl::cpu_isa::avx512_core},
      {"AVX512_BF16", dnnl::cpu_isa::avx512_core_bf16},
      {"AMX", dnnl::cpu_isa::avx512_core_amx}};
  const auto limit = limits.find(*wanted);
  ZERO_CHECK(limit != limits.end() && dnnl::set_max_cpu_isa(limit->second) == dnnl::status::success,
             "ZERO_MAX_CPU_ISA is \"{}\", but oneDNN cannot be limited so here; unset it", *wanted);
}

bool ProductProbe::available(DType dtype) {
  try {
    const Operands smallest({"", 16, 16, 16}, dtype, Format::ab);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

ProductProbe::ProductProbe(const ProbeShape& shape, DType dtype, Layout layout, int threads)
    : shape_(shape), threads_(threads) {
  const ThreadsForNow scope(threads_);
  try {
    operands_ = std::make_unique<Operands>(shape, dtype,
                                           layout == Layout::packed ? Format::any : Format::ab);
  } catch (const dnnl::error& error) {
    fail("oneDNN has no {} products on this machine: {}", name_of(dtype), error.what());
  }
}

ProductProbe::~ProductProbe() = default;

void ProductProbe::run() {
  const ThreadsForNow scope(threads_);
  Operands& o = *operands_;
  o.product.execute(o.stream, {{DNNL_ARG_SRC, o.a}, {DNNL_ARG_WEIGHTS, o.b}, {DNNL_ARG_DST, o.c}});
  o.stream.wait();
}

}  // namespace zero::bench
