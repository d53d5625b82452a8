// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <string>

#include "base/dtype.h"
#include "bench/limits.h"
#include "bench/timing.h"

namespace zero::bench {
namespace {

constexpr int kRounds = 7;

/// C[m, n] = A[m, k] * B[k, n].
struct Shape {
  const char* name;
  std::int64_t m, n, k;
};

// GPT-2 124M and 350M at 2048 tokens; the head in chunks of 512.
constexpr Shape kShapes[] = {
    {"124m qkv", 2048, 2304, 768},        {"124m attention out", 2048, 768, 768},
    {"124m mlp up", 2048, 3072, 768},     {"124m mlp down", 2048, 768, 3072},
    {"124m head chunk", 512, 50257, 768}, {"350m mlp up", 2048, 4096, 1024},
};

using Format = dnnl::memory::format_tag;

/// One product with its own operands, filled with random numbers: zeros would take less power, and
/// the clock would show it.
class Operands {
 public:
  Operands(const Shape& shape, DType dtype, Format format, const dnnl::engine& engine)
      : stream_(engine) {
    const auto type =
        dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const dnnl::memory::desc a({shape.m, shape.k}, type, format);
    const dnnl::memory::desc b({shape.k, shape.n}, type, format);
    const dnnl::memory::desc c({shape.m, shape.n}, type, format);
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), engine);
#else
    const dnnl::matmul::primitive_desc description(engine, a, b, c);
#endif
    product_ = dnnl::matmul(description);
    a_ = random(description.src_desc(), {shape.m, shape.k}, engine);
    b_ = random(description.weights_desc(), {shape.k, shape.n}, engine);
    c_ = dnnl::memory(description.dst_desc(), engine);
  }

  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::memory random(const dnnl::memory::desc& wanted, const dnnl::memory::dims& dims,
                      const dnnl::engine& engine) {
    const dnnl::memory::desc plain(dims, dnnl::memory::data_type::f32, Format::ab);
    dnnl::memory values(plain, engine);
    auto* const data = static_cast<float*>(values.get_data_handle());
    std::minstd_rand generator(1);
    for (std::int64_t i = 0; i < dims[0] * dims[1]; ++i) {
      data[i] = static_cast<float>(generator()) * 0x1p-30F - 1.0F;
    }
    dnnl::memory packed(wanted, engine);
    dnnl::reorder(values, packed).execute(stream_, values, packed);
    stream_.wait();
    return packed;
  }

  dnnl::stream stream_;
  dnnl::matmul product_;
  dnnl::memory a_, b_, c_;
};

struct Case {
  Shape shape;
  Format format;
  std::unique_ptr<Operands> operands;
};

std::vector<Case> make_cases(DType dtype, const dnnl::engine& engine) {
  std::vector<Case> cases;
  for (const Shape& shape : kShapes) {
    for (const Format format : {Format::any, Format::ab}) {
      cases.push_back({shape, format, std::make_unique<Operands>(shape, dtype, format, engine)});
    }
  }
  return cases;
}

std::vector<Row> measure(DType dtype, const dnnl::engine& engine) {
  const std::vector<Case> cases = make_cases(dtype, engine);
  std::vector<std::function<void()>> bodies;
  for (const Case& each : cases) bodies.emplace_back([&each] { each.operands->run(); });
  const std::vector<Timing> timings = interleaved(bodies, kRounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Shape& s = cases[i].shape;
    const double giga = 2e-9 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k);
    rows.push_back({.section = "limits",
                    .name = fmt::format("product {} {}", s.name,
                                        cases[i].format == Format::any ? "packed" : "plain"),
                    .bytes = (s.m * s.k + s.k * s.n + s.m * s.n) * size_of(dtype),
                    .dtype = std::string(name_of(dtype)),
                    .value = giga / timings[i].median,
                    .best = giga / timings[i].best,
                    .unit = "GFLOP/s"});
  }
  return rows;
}

}  // namespace

void measure_products(int threads, Report& report) {
  omp_set_num_threads(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    try {
      std::vector<Row> rows = measure(dtype, engine);
      double limit = 0;
      for (const Row& row : rows) limit = std::max(limit, row.value);
      for (Row& row : rows) {
        row.limit = limit;
        report.add(std::move(row));
      }
      report.add({.section = "limits",
                  .name = "product rate",
                  .dtype = std::string(name_of(dtype)),
                  .value = limit,
                  .best = limit,
                  .unit = "GFLOP/s"});
    } catch (const dnnl::error& error) {
      report.note(fmt::format("oneDNN has no {} products on this machine: {}", name_of(dtype),
                              error.what()));
    }
  }
}

}  // namespace zero::bench
