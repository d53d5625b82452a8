// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Cross-entropy, also with columns of logits cut over several ranks.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/row_of.h"

namespace zero::cpu {
namespace {

// Rescales the sums of exponentials to the largest logit of all ranks.
void fold_row(std::int64_t row, std::int64_t rows, std::int64_t ranks, View parts, double& loss) {
  const auto part = [&](std::int64_t rank) {
    return row_of<float>(parts, rank * rows + row, kSoftmaxPart);
  };
  float largest = part(0)[0];
  for (std::int64_t rank = 1; rank < ranks; ++rank) largest = std::max(largest, part(rank)[0]);
  double sum = 0;
  float target = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const float* of_rank = part(rank);
    sum += static_cast<double>(of_rank[1]) *
           std::exp(static_cast<double>(of_rank[0]) - static_cast<double>(largest));
    target += of_rank[2];
  }
  part(0)[0] = largest;
  part(0)[1] = static_cast<float>(sum);
  loss = std::log(sum) + static_cast<double>(largest) - static_cast<double>(target);
}

}  // namespace

void CpuOps::do_cross_entropy_forward(const LogitsShape& s, View logits, View targets,
                                      View losses) {
  const LogitRows operands{.shape = s, .logits = logits, .targets = targets, .losses = losses};
  submit_rows("cross_entropy_forward", s.rows, 1,
              [=](Rows rows) { cross_entropy_rows(operands, rows); });
}

void CpuOps::do_cross_entropy_backward(const LogitsShape& s, View logits, View targets, float scale,
                                       View losses) {
  const LogitRows operands{
      .shape = s, .logits = logits, .targets = targets, .losses = losses, .scale = scale};
  submit_rows("cross_entropy_backward", s.rows, 1,
              [=](Rows rows) { cross_entropy_gradient_rows(operands, rows); });
}

void CpuOps::do_softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  const LogitRows operands{.shape = s, .logits = logits, .targets = targets, .parts = parts};
  submit_rows("softmax_part", s.rows, 1, [=](Rows rows) { softmax_part_rows(operands, rows); });
}

void CpuOps::do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  device().compute().submit("fold_softmax", [rows, ranks, parts, losses] {
    for (std::int64_t row = 0; row < rows; ++row) {
      fold_row(row, rows, ranks, parts, losses.as<double>()[static_cast<std::size_t>(row)]);
    }
  });
}

void CpuOps::do_cross_entropy_gradient(const LogitsShape& s, View logits, View targets,
                                       View softmax, float scale) {
  const LogitRows operands{
      .shape = s, .logits = logits, .targets = targets, .parts = softmax, .scale = scale};
  submit_rows("cross_entropy_gradient", s.rows, 1,
              [=](Rows rows) { softmax_gradient_rows(operands, rows); });
}

void CpuOps::do_sum(View losses, View total) {
  device().compute().submit("sum", [losses, total] {
    double sum = 0;
    for (const double loss : losses.as<double>()) sum += loss;
    total.as<double>()[0] = sum;
  });
}

}  // namespace zero::cpu
