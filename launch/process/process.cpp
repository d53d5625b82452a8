// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hwy/targets.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "collectives/backends.h"
#include "device/cpu/primitives.h"
#include "device/cuda/gpus.h"
#include "launch/telemetry/output.h"
#include "ops/cpu/processor.h"
#include "ops/cuda/make_ops.h"

namespace zero {
namespace {

constexpr const char* kVariable = "ZERO_MAX_CPU_ISA";

struct Limit {
  std::string_view name;
  cpu::Bf16Instructions products;
  std::int64_t beyond;  ///< Highway targets beyond the limit; on x86, lower bits are better
};
constexpr std::array<Limit, 4> kLimits{{{"AVX2", cpu::Bf16Instructions::none, HWY_AVX2 - 1},
                                        {"AVX512", cpu::Bf16Instructions::none, 0},
                                        {"AVX512_BF16", cpu::Bf16Instructions::pairs, 0},
                                        {"AMX", cpu::Bf16Instructions::tiles, 0}}};

}  // namespace

void limit_cpu(const Environment& environment) {
  const auto wanted = environment(kVariable);
  if (!wanted) return;
  const auto* const limit = std::ranges::find(kLimits, *wanted, &Limit::name);
  ZERO_CHECK(limit != kLimits.end(),
             "{} is \"{}\"; expected AVX2, AVX512, AVX512_BF16 or AMX, or unset it", kVariable,
             *wanted);
  cpu::limit_bf16_instructions(limit->products);
  if (limit->beyond != 0) hwy::DisableTargets(limit->beyond);
}

std::string cpu_limit_text(const Environment& environment) {
  const auto limit = environment(kVariable);
  return limit ? fmt::format(" ({}={})", kVariable, *limit) : "";
}

std::string version() { return ZERO_VERSION; }

std::string kernels_text(DeviceKind device) {
  if (device == DeviceKind::cpu) return std::string(cpu::simd_target());
  return fmt::format("cuBLASLt {}, cuDNN {}", cuda::cublaslt_version(), cuda::cudnn_version());
}

std::string instructions_text(std::string_view target) {
  if (!target.starts_with("AVX3")) return std::string(target);
  return fmt::format("AVX-512 (Highway's target {})", target);
}

std::string libraries_text(DeviceKind device) {
  std::string text =
      fmt::format("zero {}\nMPI: {}\nvector instructions: {}{}", ZERO_VERSION, mpi::version(),
                  instructions_text(cpu::simd_target()), cpu_limit_text(process_environment()));
  if (device == DeviceKind::cpu) return text;  // nothing of CUDA is loaded
  return text + fmt::format("\nCUDA: {}\ncuBLASLt: {}\ncuDNN: {}\nNCCL: {}",
                            cuda::runtime_version(), cuda::cublaslt_version(),
                            cuda::cudnn_version(), nccl::version());
}

std::string version_text() {
  return fmt::format("{}\nCUDA of the driver: {}", libraries_text(DeviceKind::cuda),
                     cuda::driver_version());
}

void end_job(std::string_view program, const std::string& message, int rank, int world) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200 * std::min(rank, 8)));
  const std::string who =
      world == 1 || message.starts_with("[rank ") ? "" : fmt::format("[rank {}] ", rank);
  print_to_stderr(fmt::format("{}: {}{}\n", program, who, message));
  mpi::abort(1);
}

void keep_streams_closed() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest that is free; the wrong way to be of use.
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void report_large_files() { ::signal(SIGXFSZ, SIG_IGN); }

}  // namespace zero
