// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Cross-entropy of logits whose columns several ranks hold.
#include <algorithm>
#include <cmath>

#include "device/cpu/parallel.h"
#include "model/cpu/cpu_ops.h"
#include "model/cpu/typed.h"

namespace zero::cpu {
namespace {

// The sums of exponentials meet on the scale of the largest logit of all.
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

void CpuOps::do_softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  const SoftmaxRows operands{s.columns, s.first, logits, targets, parts, 0.0F};
  device_.compute().submit("softmax_part", [this, s, operands] {
    parallel_for(threads_, s.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      softmax_part_rows(operands, {begin, end});
    });
  });
}

void CpuOps::do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  device_.compute().submit("fold_softmax", [rows, ranks, parts, losses] {
    for (std::int64_t row = 0; row < rows; ++row) {
      fold_row(row, rows, ranks, parts, losses.as<double>()[static_cast<std::size_t>(row)]);
    }
  });
}

void CpuOps::do_cross_entropy_gradient(const LogitsShape& s, View logits, View targets,
                                       View softmax, float scale) {
  const SoftmaxRows operands{s.columns, s.first, logits, targets, softmax, scale};
  device_.compute().submit("cross_entropy_gradient", [this, s, operands] {
    parallel_for(threads_, s.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      softmax_gradient_rows(operands, {begin, end});
    });
  });
}

}  // namespace zero::cpu
