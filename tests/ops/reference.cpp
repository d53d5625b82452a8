// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/reference.h"

#include <cmath>
#include <cstddef>

namespace zero::reference {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

double at(const Values& a, std::int64_t i) { return a[index(i)]; }
double& at(Values& a, std::int64_t i) { return a[index(i)]; }

// Where element d of part p (0 q, 1 k, 2 v) of a head is, at position t of sequence b.
std::int64_t qkv_index(const Attention& s, std::int64_t row, std::int64_t p, std::int64_t h,
                       std::int64_t d) {
  const std::int64_t head = p == 0 ? h : s.heads + (p - 1) * s.keys() + h * s.keys() / s.heads;
  return row * s.qkv_width() + head * s.head_width + d;
}

std::int64_t out_index(const Attention& s, std::int64_t row, std::int64_t h, std::int64_t d) {
  return row * s.heads * s.head_width + h * s.head_width + d;
}

// Probabilities of one query over the keys up to it, 0 for those that it does not see.
Values probabilities(const Attention& s, const Values& qkv, std::int64_t first_row, std::int64_t t,
                     std::int64_t h) {
  Values p;
  double sum = 0;
  for (std::int64_t j = 0; j <= t; ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < s.head_width; ++d) {
      score += at(qkv, qkv_index(s, first_row + t, 0, h, d)) *
               at(qkv, qkv_index(s, first_row + j, 1, h, d));
    }
    const double power = std::exp(score * s.score_scale());
    p.push_back(s.sees(t, j) ? power : 0.0);
    sum += p.back();
  }
  for (double& value : p) value /= sum;
  return p;
}

}  // namespace

Values product(const Values& a, const Values& b, std::int64_t m, std::int64_t k, std::int64_t n) {
  Values c(index(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) at(c, i * n + j) += at(a, i * k + l) * at(b, l * n + j);
    }
  }
  return c;
}

Values transposed(const Values& a, std::int64_t rows, std::int64_t columns) {
  Values b(a.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) at(b, j * rows + i) = at(a, i * columns + j);
  }
  return b;
}

Values column_sums(const Values& a, std::int64_t rows, std::int64_t columns) {
  Values sums(index(columns));
  for (std::int64_t i = 0; i < rows * columns; ++i) at(sums, i % columns) += at(a, i);
  return sums;
}

Values layer_norm(const Values& x, const Values& gamma, const Values& beta, std::int64_t columns) {
  Values y(x.size());
  const auto n = static_cast<double>(columns);
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(x.size()); first += columns) {
    double mean = 0;
    double variance = 0;
    for (std::int64_t i = 0; i < columns; ++i) mean += at(x, first + i) / n;
    for (std::int64_t i = 0; i < columns; ++i) {
      variance += (at(x, first + i) - mean) * (at(x, first + i) - mean) / n;
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      at(y, first + i) =
          (at(x, first + i) - mean) / std::sqrt(variance + 1e-5) * at(gamma, i) + at(beta, i);
    }
  }
  return y;
}

Values rms_norm(const Values& x, const Values& weight, std::int64_t columns, double epsilon) {
  Values y(x.size());
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(x.size()); first += columns) {
    double square = 0;
    for (std::int64_t i = 0; i < columns; ++i) square += at(x, first + i) * at(x, first + i);
    const double root = std::sqrt(square / static_cast<double>(columns) + epsilon);
    for (std::int64_t i = 0; i < columns; ++i) {
      at(y, first + i) = at(x, first + i) / root * at(weight, i);
    }
  }
  return y;
}

Values geglu(const Values& x, std::int64_t columns) {
  Values y;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); i += 2 * columns) {
    for (std::int64_t j = 0; j < columns; ++j) {
      y.push_back(gelu({at(x, i + j)})[0] * at(x, i + columns + j));
    }
  }
  return y;
}

Values swiglu(const Values& x, std::int64_t columns) {
  Values y;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); i += 2 * columns) {
    for (std::int64_t j = i; j < i + columns; ++j) {
      y.push_back(at(x, j) / (1 + std::exp(-at(x, j))) * at(x, j + columns));
    }
  }
  return y;
}

Values gelu(const Values& x) {
  Values y;
  for (const double v : x) {
    y.push_back(0.5 * v *
                (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v))));
  }
  return y;
}

Values attention(const Attention& s, const Values& qkv) {
  Values out(index(s.batch * s.sequence * s.heads * s.head_width));
  for (std::int64_t i = 0; i < s.batch * s.heads * s.sequence; ++i) {
    const std::int64_t t = i % s.sequence;
    const std::int64_t h = i / s.sequence % s.heads;
    const std::int64_t first = i / s.sequence / s.heads * s.sequence;
    const Values p = probabilities(s, qkv, first, t, h);
    for (std::int64_t j = 0; j <= t; ++j) {
      for (std::int64_t d = 0; d < s.head_width; ++d) {
        at(out, out_index(s, first + t, h, d)) +=
            at(p, j) * at(qkv, qkv_index(s, first + j, 2, h, d));
      }
    }
  }
  return out;
}

Values attention_backward(const Attention& s, const Values& qkv, const Values& dout) {
  Values dqkv(qkv.size());
  for (std::int64_t i = 0; i < s.batch * s.heads * s.sequence; ++i) {
    const std::int64_t t = i % s.sequence;
    const std::int64_t h = i / s.sequence % s.heads;
    const std::int64_t first = i / s.sequence / s.heads * s.sequence;
    const Values p = probabilities(s, qkv, first, t, h);
    Values dp(p.size());
    double mean = 0;
    for (std::int64_t j = 0; j <= t; ++j) {
      for (std::int64_t d = 0; d < s.head_width; ++d) {
        const double upstream = at(dout, out_index(s, first + t, h, d));
        at(dp, j) += upstream * at(qkv, qkv_index(s, first + j, 2, h, d));
        at(dqkv, qkv_index(s, first + j, 2, h, d)) += at(p, j) * upstream;
      }
      mean += at(p, j) * at(dp, j);
    }
    for (std::int64_t j = 0; j <= t; ++j) {
      const double ds = at(p, j) * (at(dp, j) - mean) * s.score_scale();
      for (std::int64_t d = 0; d < s.head_width; ++d) {
        const std::int64_t q = qkv_index(s, first + t, 0, h, d);
        const std::int64_t k = qkv_index(s, first + j, 1, h, d);
        at(dqkv, q) += ds * at(qkv, k);
        at(dqkv, k) += ds * at(qkv, q);
      }
    }
  }
  return dqkv;
}

Values cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                     std::int64_t columns) {
  Values losses;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const auto first = static_cast<std::int64_t>(row) * columns;
    double sum = 0;
    for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(at(logits, first + i));
    losses.push_back(std::log(sum) - at(logits, first + targets[row]));
  }
  return losses;
}

Values differences(const std::function<Values(const Values&)>& f, const Values& x,
                   const Values& weights) {
  const auto total = [&](const Values& at_x) {
    const Values y = f(at_x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  Values gradient;
  Values moved = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    moved[i] = x[i] + kStep;
    const double above = total(moved);
    moved[i] = x[i] - kStep;
    gradient.push_back((above - total(moved)) / (2 * kStep));
    moved[i] = x[i];
  }
  return gradient;
}

}  // namespace zero::reference
