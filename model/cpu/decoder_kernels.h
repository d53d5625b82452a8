// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "device/view.h"
#include "model/cpu/row_kernels.h"
#include "model/ops.h"

namespace zero::cpu {

// More row kernels, under the same rules as row_kernels.h: those of Llama's family.

void rms_norm_forward_rows(std::int64_t columns, const RmsNormForward& operands, Rows rows);
void rms_norm_apply_rows(std::int64_t columns, const RmsNormForward& operands, Rows rows);
/// Adds the rows' part to dweight, fp32, which starts at zero.
void rms_norm_backward_rows(std::int64_t columns, const RmsNormBackward& operands, Rows rows,
                            std::span<float> dweight);

void swiglu_rows(View x, View y, std::int64_t columns, Rows rows);
void swiglu_backward_rows(View x, View dy, std::int64_t columns, Rows rows);

struct RotaryRows {
  RotaryShape shape;
  Turn turn = Turn::forward;
  View x, cosines, sines;
};
void rotary_rows(const RotaryRows& operands, Rows rows);

}  // namespace zero::cpu
