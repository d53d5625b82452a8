// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <type_traits>

#include "device/cpu/dispatch.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

template <typename T>
void gelu(const T* x, T* y, std::size_t count) {
  const hn::ScalableTag<float> d;
  for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
    store(d, formulas(d).gelu(load(d, x + i, lanes)), y + i, lanes);
  });
}

/// y null: not written.
template <typename T>
void gelu_backward_row(const T* x, T* dy, T* y, std::size_t count, float* dbias) {
  const hn::ScalableTag<float> d;
  for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
    auto output = hn::Zero(d);
    auto dx = hn::Zero(d);
    formulas(d).gelu_backward(load(d, x + i, lanes), load(d, dy + i, lanes), output, dx);
    if (y != nullptr) store(d, output, y + i, lanes);
    store(d, dx, dy + i, lanes);
    store(d, hn::Add(load(d, dbias + i, lanes), dx), dbias + i, lanes);
  });
}

void gelu_elements(const View& x, const View& y, Rows elements) {
  dispatch(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    gelu(row_of<T>(x, elements.begin, 1), row_of<T>(y, elements.begin, 1),
         static_cast<std::size_t>(elements.end - elements.begin));
  });
}

void gelu_backward(const GeluBackwardRows& o, Rows rows, float* dbias) {
  dispatch(o.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gelu_backward_row(row_of<T>(o.x, row, o.columns), row_of<T>(o.dy, row, o.columns),
                        o.y.empty() ? nullptr : row_of<T>(o.y, row, o.columns),
                        static_cast<std::size_t>(o.columns), dbias);
    }
  });
}

void add_elements(const View& x, const View& delta, const View& sum, Rows elements) {
  dispatch(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    add_rows(row_of<T>(x, elements.begin, 1), row_of<T>(delta, elements.begin, 1),
             row_of<T>(sum, elements.begin, 1),
             static_cast<std::size_t>(elements.end - elements.begin));
  });
}

void scale_elements(const View& x, float factor, Rows elements) {
  const hn::ScalableTag<float> d;
  dispatch(x.dtype(), [&](auto type) {
    auto* const values = row_of<typename decltype(type)::type>(x, elements.begin, 1);
    for_lanes(d, static_cast<std::size_t>(elements.end - elements.begin),
              [&](std::size_t i, auto lanes) HWY_ATTR {
                store(d, hn::Mul(load(d, values + i, lanes), hn::Set(d, factor)), values + i,
                      lanes);
              });
  });
}

void column_sums(const View& x, std::int64_t columns, Rows rows, float* sums) {
  dispatch(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      add_rows(sums, row_of<T>(x, row, columns), sums, static_cast<std::size_t>(columns));
    }
  });
}

template <typename T>
void fold(const float* partials, std::int64_t count, std::int64_t stride, T* out,
          std::size_t columns) {
  const hn::ScalableTag<float> d;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    auto sum = load(d, partials + i, lanes);
    for (std::int64_t k = 1; k < count; ++k) {
      sum = hn::Add(sum, load(d, partials + k * stride + static_cast<std::int64_t>(i), lanes));
    }
    store(d, sum, out + i, lanes);
  });
}

void fold_all(const float* partials, std::int64_t count, std::int64_t stride, const View& out) {
  dispatch(out.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    fold(partials, count, stride, row_of<T>(out, 0, 1), static_cast<std::size_t>(out.count()));
  });
}

template <Gate gate, typename T>
void gate_row(const T* x, T* y, std::size_t columns) {
  const hn::ScalableTag<float> d;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto open = load(d, x + i, lanes);
    const auto value = load(d, x + columns + i, lanes);
    if constexpr (gate == Gate::silu) {
      store(d, formulas(d).swiglu(open, value), y + i, lanes);
    } else {
      store(d, formulas(d).geglu(open, value), y + i, lanes);
    }
  });
}

template <Gate gate, typename T>
void gate_backward_row(T* x, T* dy, std::size_t columns) {
  const hn::ScalableTag<float> d;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    auto open = load(d, x + i, lanes);
    auto value = load(d, x + columns + i, lanes);
    auto output = load(d, dy + i, lanes);
    if constexpr (gate == Gate::silu) {
      formulas(d).swiglu_backward(open, value, output);
    } else {
      formulas(d).geglu_backward(open, value, output);
    }
    store(d, output, dy + i, lanes);
    store(d, value, x + columns + i, lanes);
    store(d, open, x + i, lanes);
  });
}

/// Calls body(type, gate).
template <typename Body>
void with_gate(DType dtype, Gate gate, const Body& body) {
  dispatch(dtype, [&](auto type) {
    if (gate == Gate::silu) {
      body(type, std::integral_constant<Gate, Gate::silu>());
    } else {
      body(type, std::integral_constant<Gate, Gate::gelu>());
    }
  });
}

void gated(Gate gate, const View& x, const View& y, std::int64_t columns, Rows rows) {
  with_gate(x.dtype(), gate, [&]<class T, class G>(std::type_identity<T>, G) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gate_row<G::value>(row_of<T>(x, row, 2 * columns), row_of<T>(y, row, columns),
                         static_cast<std::size_t>(columns));
    }
  });
}

void gated_backward(Gate gate, const View& x, const View& dy, std::int64_t columns, Rows rows) {
  with_gate(x.dtype(), gate, [&]<class T, class G>(std::type_identity<T>, G) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gate_backward_row<G::value>(row_of<T>(x, row, 2 * columns), row_of<T>(dy, row, columns),
                                  static_cast<std::size_t>(columns));
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(gelu_elements);
HWY_EXPORT(gelu_backward);
HWY_EXPORT(add_elements);
HWY_EXPORT(scale_elements);
HWY_EXPORT(column_sums);
HWY_EXPORT(fold_all);
HWY_EXPORT(gated);
HWY_EXPORT(gated_backward);

void gelu_range(View x, View y, Rows elements) {
  HWY_DYNAMIC_DISPATCH(gelu_elements)(x, y, elements);
}

void gelu_backward_rows(const GeluBackwardRows& operands, Rows rows, std::span<float> dbias) {
  HWY_DYNAMIC_DISPATCH(gelu_backward)(operands, rows, dbias.data());
}

void add_range(View x, View delta, View sum, Rows elements) {
  HWY_DYNAMIC_DISPATCH(add_elements)(x, delta, sum, elements);
}

void scale_range(View x, float factor, Rows elements) {
  HWY_DYNAMIC_DISPATCH(scale_elements)(x, factor, elements);
}

void column_sum_rows(View x, std::int64_t columns, Rows rows, std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(column_sums)(x, columns, rows, sums.data());
}

void fold_partials(const float* partials, std::int64_t count, std::int64_t stride, View out) {
  HWY_DYNAMIC_DISPATCH(fold_all)(partials, count, stride, out);
}

void gated_rows(Gate gate, View x, View y, std::int64_t columns, Rows rows) {
  HWY_DYNAMIC_DISPATCH(gated)(gate, x, y, columns, rows);
}

void gated_backward_rows(Gate gate, View x, View dy, std::int64_t columns, Rows rows) {
  HWY_DYNAMIC_DISPATCH(gated_backward)(gate, x, dy, columns, rows);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
