// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Causal self-attention, and the rotary embeddings of its queries and keys.
#include "base/error.h"
#include "model/op_call.h"

namespace zero {
namespace {

/// `products` are of every query with the keys that it sees, over all heads.
OpCall attention(std::string_view name, const AttentionShape& s, double products) {
  ZERO_CHECK(s.key_heads() > 0 && s.heads % s.key_heads() == 0,
             "{}: {} heads, expected a multiple of the {} of keys and values", name, s.heads,
             s.key_heads());
  ZERO_CHECK(s.window >= 0, "{}: a window of {} positions, expected at least 1, or 0 for none",
             name, s.window);
  const auto seen = static_cast<double>(s.seen());
  const double pairs = seen * (seen + 1) / 2 + static_cast<double>(s.sequence - s.seen()) * seen;
  const double product = 2.0 * static_cast<double>(s.batch * s.heads * s.head_width) * pairs;
  return {.name = name, .dtype = s.dtype, .flop = products * product};
}

}  // namespace

void Ops::attention_forward(const AttentionShape& s, View qkv, View out, View log_sums) {
  const std::int64_t n = s.batch * s.sequence * s.heads;
  run(attention("attention_forward", s, 2),
      {{"qkv", qkv, s.batch * s.sequence * s.qkv_width(), s.dtype},
       {"out", out, n * s.head_width, s.dtype},
       {"log_sums", log_sums, n, DType::fp32}},
      [&] { do_attention_forward(s, qkv, out, log_sums); });
}

// Five products: the scores again, and the gradients of probabilities, q, k and v.
void Ops::attention_backward(const AttentionShape& s, View qkv, View out, View log_sums, View dout,
                             View dqkv) {
  const std::int64_t n = s.batch * s.sequence * s.heads;
  const std::int64_t wide = s.batch * s.sequence * s.qkv_width();
  run(attention("attention_backward", s, 5),
      {{"qkv", qkv, wide, s.dtype},
       {"out", out, n * s.head_width, s.dtype},
       {"log_sums", log_sums, n, DType::fp32},
       {"dout", dout, n * s.head_width, s.dtype},
       {"dqkv", dqkv, wide, s.dtype}},
      [&] { do_attention_backward(s, qkv, out, log_sums, dout, dqkv); });
}

void Ops::rotary_table(const RotaryShape& s, const RotaryAngles& angles, View cosines, View sines) {
  angles.validate();
  run({"rotary_table"},
      {{"cosines", cosines, s.table(), DType::fp32}, {"sines", sines, s.table(), DType::fp32}},
      [&] { do_rotary_table(s, angles, cosines, sines); });
}

void Ops::rotary(const RotaryShape& s, Turn turn, View x, View cosines, View sines) {
  ZERO_CHECK(s.head_width % 2 == 0, "rotary: heads of {} elements, expected an even number",
             s.head_width);
  const std::int64_t rows = s.batch * s.sequence;
  run({"rotary", s.dtype},
      {{"x", x, rows * s.row_width, s.dtype, 2 * rows * s.heads * s.head_width},
       {"cosines", cosines, s.table(), DType::fp32},
       {"sines", sines, s.table(), DType::fp32}},
      [&] { do_rotary(s, turn, x, cosines, sines); });
}

}  // namespace zero
