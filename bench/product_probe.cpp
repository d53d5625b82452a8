// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/product_probe.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>

#include "base/error.h"
#include "launch/telemetry/machine_limits.h"

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

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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

const std::vector<ProbeShape>& gpt2_probe_shapes() {
  static const std::vector<ProbeShape> shapes{
      {"124m qkv", 2048, 2304, 768},        {"124m attention out", 2048, 768, 768},
      {"124m mlp up", 2048, 3072, 768},     {"124m mlp down", 2048, 768, 3072},
      {"124m head chunk", 512, 50257, 768}, {"350m mlp up", 2048, 4096, 1024},
  };
  return shapes;
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

ProductRate::ProductRate(DType dtype, int threads, const std::vector<ProbeShape>& shapes)
    : asked_(dtype),
      dtype_(ProductProbe::available(dtype) ? dtype : DType::fp32),
      threads_(threads),
      seconds_(shapes.size()) {
  for (const ProbeShape& shape : shapes) {
    probes_.push_back(
        std::make_unique<ProductProbe>(shape, dtype_, ProductProbe::Layout::packed, threads));
  }
}

double ProductRate::sample(int repeats) {
  using Clock = std::chrono::steady_clock;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    probes_[i]->run();
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const auto start = Clock::now();
      probes_[i]->run();
      seconds_[i].push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  multiply_add_rate(DType::fp32, threads_);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    multiply_adds_.push_back(multiply_add_rate(DType::fp32, threads_));
  }
  return rate_of_newest(static_cast<std::size_t>(repeats));
}

double ProductRate::rate() const {
  return multiply_adds_.empty() ? 0 : rate_of_newest(multiply_adds_.size());
}

double ProductRate::rate_of_newest(std::size_t samples) const {
  const auto newest_rates = multiply_adds_.end() - static_cast<std::ptrdiff_t>(samples);
  double best = median_of({newest_rates, multiply_adds_.end()});
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    const auto end = seconds_[i].end();
    const std::vector<double> newest(end - static_cast<std::ptrdiff_t>(samples), end);
    best = std::max(best, probes_[i]->shape().flop() / median_of(newest));
  }
  return best;
}

}  // namespace zero::bench
