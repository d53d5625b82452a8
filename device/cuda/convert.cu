// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/dispatch.h"
#include "device/cuda/index.h"
#include "device/cuda/number.cuh"
#include "device/cuda/primitives.h"

namespace zero::cuda {
namespace {

constexpr int kElements = 8;  // per thread: 16 bytes of 16-bit elements

/// A block reads all its elements before it writes one, as `shrinks` needs.
template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    convert_elements(const From* from, To* to, std::int64_t count, int wide, int shrinks) {
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kElements;
  const int left = static_cast<int>(max(std::int64_t{0}, min(count - at, std::int64_t{kElements})));
  const bool whole = wide != 0 && left == kElements;
  const Floats<kElements> values =
      whole ? load<kElements>(from + at) : load_first<kElements>(from + at, left);
  if (shrinks != 0) __syncthreads();
  if (whole) {
    store(values, to + at);
  } else {
    store_first(values, to + at, left);
  }
}

template <class From, class To>
void convert_range(const From* from, To* to, std::int64_t count, cudaStream_t stream) {
  const bool wide = is_wide<From, kElements>(from) && is_wide<To, kElements>(to);
  const bool shrinks = static_cast<const void*>(from) == static_cast<const void*>(to);
  launch("convert", convert_elements<From, To>, {dim3(blocks_for(div_ceil(count, kElements)))},
         stream, from, to, count, wide ? 1 : 0, shrinks ? 1 : 0);
}

}  // namespace

void convert(const View& from, const View& to, cudaStream_t stream) {
  cpu::dispatch(from.dtype(), [&](auto from_type) {
    cpu::dispatch(to.dtype(), [&](auto to_type) {
      using From = typename decltype(from_type)::type;
      using To = typename decltype(to_type)::type;
      if constexpr (!std::is_same_v<From, To>) {
        const auto* const source = static_cast<const From*>(from.data());
        auto* const result = static_cast<To*>(to.data());
        if (from.data() != to.data() || sizeof(From) == sizeof(To)) {
          return convert_range(source, result, from.count(), stream);
        }
        constexpr std::int64_t kFirst = std::int64_t{kThreads} * kElements;  // of one block
        for_shrinking_ranges(from.count(), kFirst, [&](const ElementRange& range) {
          convert_range(source + range.begin, result + range.begin, range.count, stream);
        });
      }
    });
  });
}

}  // namespace zero::cuda
