// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Token and position embedding.
#include "ops/op_call.h"

namespace zero {
namespace {

/// The table of positions: a sequence reads the first rows. Its bytes are counted with the table of
/// tokens.
OpOperand positions(const EmbeddingShape& s, View view, DType dtype) {
  const std::int64_t count = s.sequence * s.width;
  OpOperand table = optional("positions", view.empty() ? view : view.slice(0, count), count, dtype);
  table.moved = 0;
  return table;
}

}  // namespace

// Reads only the rows of occurring tokens and positions: twice the size of x.
void Ops::embedding_forward(const EmbeddingShape& s, View tokens, View token_weight,
                            View position_weight, View x) {
  const std::int64_t rows = s.batch * s.sequence;
  run({"embedding_forward", s.dtype},
      {{"tokens", tokens, rows, DType::i32},
       {"token_weight", token_weight, s.vocabulary * s.width, s.dtype, 2 * rows * s.width},
       {"x", x, rows * s.width, s.dtype},
       positions(s, position_weight, s.dtype)},
      [&] { do_embedding_forward(s, tokens, token_weight, position_weight, x); });
}

// Reads and writes rows of both tables: four times the size of dx, in fp32.
void Ops::embedding_backward(const EmbeddingShape& s, View tokens, View dx, View token_gradient,
                             View position_gradient) {
  const std::int64_t rows = s.batch * s.sequence;
  run({"embedding_backward", s.dtype},
      {{"tokens", tokens, rows, DType::i32},
       {"dx", dx, rows * s.width, s.dtype},
       {"token_gradient", token_gradient, s.vocabulary * s.width, DType::fp32, 4 * rows * s.width},
       positions(s, position_gradient, DType::fp32)},
      [&] { do_embedding_backward(s, tokens, dx, token_gradient, position_gradient); });
}

}  // namespace zero
