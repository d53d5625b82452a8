// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The operations of Llama's family: RMS norm, SwiGLU, rotary embeddings.
#include <cmath>
#include <vector>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/decoder_kernels.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kGrain = 8;  // rows

}  // namespace

void CpuOps::do_rms_norm_forward(const MatrixShape& s, const RmsNormForward& o) {
  device_.compute().submit("rms_norm_forward", [this, s, o] {
    parallel_for(threads_, s.rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
      rms_norm_forward_rows(s.columns, o, {begin, end});
    });
  });
}

void CpuOps::do_rms_norm_apply(const MatrixShape& s, const RmsNormForward& o) {
  device_.compute().submit("rms_norm_apply", [this, s, o] {
    parallel_for(threads_, s.rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
      rms_norm_apply_rows(s.columns, o, {begin, end});
    });
  });
}

void CpuOps::do_rms_norm_backward(const MatrixShape& s, const RmsNormBackward& o) {
  const std::int64_t chunks = div_ceil(s.rows, kRowChunk);
  auto* partials = static_cast<float*>(scratch("rms_norm_backward", 4 * chunks * s.columns));
  device_.compute().submit("rms_norm_backward", [this, s, o, partials, chunks] {
    sum_in_chunks(s.rows, s.columns, partials, [&](Rows rows, std::span<float> partial) {
      rms_norm_backward_rows(s.columns, o, rows, partial);
    });
    fold_partials(partials, chunks, s.columns, o.dweight);
  });
}

void CpuOps::do_swiglu_forward(const MatrixShape& s, View x, View y) {
  device_.compute().submit("swiglu_forward", [this, s, x, y] {
    parallel_for(threads_, s.rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
      swiglu_rows(x, y, s.columns, {begin, end});
    });
  });
}

void CpuOps::do_swiglu_backward(const MatrixShape& s, View x, View dy) {
  device_.compute().submit("swiglu_backward", [this, s, x, dy] {
    parallel_for(threads_, s.rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
      swiglu_backward_rows(x, dy, s.columns, {begin, end});
    });
  });
}

void CpuOps::do_rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines,
                             View sines) {
  device_.compute().submit("rotary_table", [this, s, angles, cosines, sines] {
    const std::vector<double> frequencies = angles.frequencies(s.head_width);
    parallel_for(threads_, s.sequence, kGrain, [&](std::int64_t begin, std::int64_t end) {
      auto at = static_cast<std::size_t>(begin) * frequencies.size();
      for (std::int64_t position = begin; position < end; ++position) {
        for (const double frequency : frequencies) {
          const double angle = static_cast<double>(position) * frequency;
          cosines.as<float>()[at] = static_cast<float>(std::cos(angle));
          sines.as<float>()[at] = static_cast<float>(std::sin(angle));
          ++at;
        }
      }
    });
  });
}

void CpuOps::do_rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) {
  const RotaryRows operands{s, turn, x, cosines, sines};
  device_.compute().submit("rotary", [this, s, operands] {
    parallel_for(threads_, s.batch * s.sequence, kGrain, [&](std::int64_t begin, std::int64_t end) {
      rotary_rows(operands, {begin, end});
    });
  });
}

}  // namespace zero::cpu
