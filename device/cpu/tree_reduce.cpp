// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/tree_reduce.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "device/cpu/dispatch.h"
#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "device/cpu/vector_io-inl.h"

#ifndef ZERO_DEVICE_CPU_TREE_REDUCE_ONCE
#define ZERO_DEVICE_CPU_TREE_REDUCE_ONCE
namespace zero::cpu {

/// Elements per pass: a multiple of kNormBlock and of every vector width, small enough that the
/// partial sums of a deep tree stay in the L1 cache.
inline constexpr std::size_t kBlock = 512;
using BlockSum = std::array<float, kBlock>;

/// The most inputs for which the next blocks are prefetched: with few inputs, the loads of one
/// block do not keep the memory busy during its sum and store.
inline constexpr std::size_t kPrefetched = 8;

/// Destinations of at least this size are written with non-temporal stores: they are read much
/// later, and fetching their lines to overwrite them would be a third of a copy's traffic.
inline constexpr std::int64_t kStreamedBytes = 1 << 20;

/// Whether the only input already is the destination, so that there is nothing to write.
inline bool is_its_own_sum(std::span<const View> inputs, const ReduceEpilogue& epilogue) {
  const View& to = epilogue.destination;
  return inputs.size() == 1 && epilogue.addends.empty() && inputs[0].data() == to.data() &&
         inputs[0].dtype() == to.dtype();
}

inline bool streams_past_caches(std::span<const View> inputs, const ReduceEpilogue& epilogue) {
  constexpr std::uintptr_t kLine = 64;
  const View& to = epilogue.destination;
  if (to.bytes() < kStreamedBytes || reinterpret_cast<std::uintptr_t>(to.data()) % kLine != 0) {
    return false;
  }
  const auto in_place = [&](const View& view) { return view.data() == to.data(); };
  return std::ranges::none_of(inputs, in_place) && std::ranges::none_of(epilogue.addends, in_place);
}

}  // namespace zero::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// One vector of one input at element `i`; zeros after the end. Only a range's last block is short.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_at(D d, const View& view, std::size_t i, std::size_t end) {
  const T* from = static_cast<const T*>(view.data()) + i;
  return i + hn::Lanes(d) <= end ? load_floats(d, from) : load_some_floats(d, from, end - i);
}

/// tree(inputs) for one to four inputs, over elements [begin, end), into `sum`.
template <typename T>
void sum_leaf(std::span<const View> inputs, std::size_t begin, std::size_t end, BlockSum& sum) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = begin; i < end; i += hn::Lanes(d)) {
    auto value = load_at<decltype(d), T>(d, inputs[0], i, end);
    if (inputs.size() > 1) value = hn::Add(value, load_at<decltype(d), T>(d, inputs[1], i, end));
    if (inputs.size() > 2) {
      auto right = load_at<decltype(d), T>(d, inputs[2], i, end);
      if (inputs.size() > 3) right = hn::Add(right, load_at<decltype(d), T>(d, inputs[3], i, end));
      value = hn::Add(value, right);
    }
    hn::StoreU(value, d, sum.data() + (i - begin));
  }
}

/// tree(inputs) over elements [begin, end), into `sum`.
template <typename T>
void sum_tree(std::span<const View> inputs, std::size_t begin, std::size_t end, BlockSum& sum) {
  if (inputs.size() <= 4) return sum_leaf<T>(inputs, begin, end, sum);
  const std::size_t left = std::bit_floor(inputs.size() - 1);
  BlockSum right;
  sum_tree<T>(inputs.first(left), begin, end, sum);
  sum_tree<T>(inputs.subspan(left), begin, end, right);
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < end - begin; i += hn::Lanes(d)) {
    float* const at = sum.data() + i;
    hn::StoreU(hn::Add(hn::LoadU(d, at), hn::LoadU(d, right.data() + i)), d, at);
  }
}

/// Rounds `sum` to elements [begin, end) of `destination`; leaves the rounded values in `sum`.
template <typename T>
void store_block(const View& destination, std::size_t begin, std::size_t end, BlockSum& sum) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = begin; i < end; i += hn::Lanes(d)) {
    T* const to = static_cast<T*>(destination.data()) + i;
    float* const at = sum.data() + (i - begin);
    const auto value = hn::LoadU(d, at);
    const auto stored = i + hn::Lanes(d) <= end ? store_rounded(d, value, to)
                                                : store_some_rounded(d, value, to, end - i);
    hn::StoreU(stored, d, at);
  }
}

/// The same with non-temporal stores, for a whole block aligned to a cache line.
template <typename T>
void stream_block(const View& destination, std::size_t begin, BlockSum& sum) {
  HWY_ALIGN std::array<T, kBlock> rounded;
  const View block(rounded.data(), kBlock, dtype_of<T>, nullptr);
  store_block<T>(block, 0, kBlock, sum);
  const hn::ScalableTag<std::uint8_t> d;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(rounded.data());
  auto* const to = static_cast<std::uint8_t*>(destination.data()) + begin * sizeof(T);
  for (std::size_t i = 0; i < kBlock * sizeof(T); i += hn::Lanes(d)) {
    hn::Stream(hn::Load(d, from + i), d, to + i);
  }
}

/// Iterates over the excluded elements of an epilogue, block by block.
class Excluded {
 public:
  Excluded(const ReduceEpilogue& epilogue, std::size_t begin) : offset_(epilogue.excluded_at) {
    if (!epilogue.excluded) return;
    ranges_ = *epilogue.excluded;
    const auto ends_before = [](const ElementRange& range, std::int64_t at) {
      return range.begin + range.count <= at;
    };
    const std::int64_t first = offset_ + static_cast<std::int64_t>(begin);
    const auto next = std::lower_bound(ranges_.begin(), ranges_.end(), first, ends_before);
    ranges_ = ranges_.subspan(static_cast<std::size_t>(next - ranges_.begin()));
  }

  /// Zeroes the excluded among `values`, elements [begin, end); returns whether others are left.
  bool drop(BlockSum& values, std::size_t begin, std::size_t end) {
    const std::int64_t low = offset_ + static_cast<std::int64_t>(begin);
    const std::int64_t high = offset_ + static_cast<std::int64_t>(end);
    std::int64_t dropped = 0;
    while (!ranges_.empty() && ranges_.front().begin < high) {
      const std::int64_t stop = ranges_.front().begin + ranges_.front().count;
      const std::int64_t from = std::max(low, ranges_.front().begin);
      const std::int64_t to = std::min(high, stop);
      std::fill(values.begin() + (from - low), values.begin() + (to - low), 0.0F);
      dropped += to - from;
      if (stop > high) break;
      ranges_ = ranges_.subspan(1);
    }
    return dropped < high - low;
  }

 private:
  std::span<const ElementRange> ranges_;
  std::int64_t offset_;
};

/// fp64 lanes for the squares of a norm block: element i belongs to lane i % kNormLanes.
inline constexpr std::size_t kNormLanes = 8;
inline constexpr std::size_t kNormBlocks = kBlock / kNormBlock;

/// to[i] = from[2 i] + from[2 i + 1]; `count`, that of the sums, is a multiple of kNormLanes.
HWY_INLINE void add_neighbours(const double* from, std::size_t count, double* to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < count; ++i) to[i] = from[2 * i] + from[2 * i + 1];
#else
  const hn::CappedTag<double, kNormLanes> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto low = hn::LoadU(d, from + 2 * i);
    const auto high = hn::LoadU(d, from + 2 * i + hn::Lanes(d));
    hn::StoreU(hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)), d, to + i);
  }
#endif
}

/// Adds the squares of the `count` values of a block to `norm`: of kNormBlock at a time a sum in
/// fp64, whose lanes are added as a tree. Squares of fp32 are exact in fp64, so neither vector
/// width nor contraction affects the bits.
void add_norm(BlockSum& values, std::size_t count, ExactSum& norm) {
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(count), values.end(), 0.0F);
  const hn::CappedTag<double, kNormLanes> d;
  const hn::Rebind<float, decltype(d)> df;
  HWY_ALIGN std::array<double, kNormBlocks * kNormLanes> lanes;
  for (std::size_t block = 0; block < kNormBlocks; ++block) {
    const float* const from = values.data() + block * kNormBlock;
    for (std::size_t lane = 0; lane < kNormLanes; lane += hn::Lanes(d)) {
      auto sum = hn::Zero(d);
      for (std::size_t i = lane; i < static_cast<std::size_t>(kNormBlock); i += kNormLanes) {
        const auto value = hn::PromoteTo(d, hn::LoadU(df, from + i));
        sum = hn::MulAdd(value, value, sum);
      }
      hn::StoreU(sum, d, lanes.data() + block * kNormLanes + lane);
    }
  }
  for (std::size_t rest = lanes.size() / 2; rest >= kNormBlocks; rest /= 2) {
    add_neighbours(lanes.data(), rest, lanes.data());
  }
  const std::size_t blocks = (count + kNormBlock - 1) / kNormBlock;
  norm.add(std::span<const double>(lanes.data(), blocks));
}

/// Prefetches block [begin, end) of every input.
template <typename T>
HWY_INLINE void prefetch(std::span<const View> inputs, std::size_t begin, std::size_t end) {
  constexpr std::size_t kLine = 64;
  for (const View& input : inputs) {
    const auto* const from = static_cast<const std::uint8_t*>(input.data());
    for (std::size_t at = begin * sizeof(T); at < end * sizeof(T); at += kLine) {
      hwy::Prefetch(from + at);
    }
  }
}

template <typename From, typename To>
void reduce_blocks(std::span<const View> inputs, const ReduceEpilogue& epilogue, std::size_t begin,
                   std::size_t end, ExactSum* norm) {
  const bool written = is_its_own_sum(inputs, epilogue);
  if (written && norm == nullptr) return;
  const bool around_caches = streams_past_caches(inputs, epilogue);
  const hn::ScalableTag<float> d;
  Excluded excluded(epilogue, begin);
  HWY_ALIGN BlockSum sum;
  for (std::size_t first = begin; first < end; first += kBlock) {
    const std::size_t last = HWY_MIN(first + kBlock, end);
    if (inputs.size() <= kPrefetched) {
      prefetch<From>(inputs, last, HWY_MIN(last + kBlock, end));
    }
    sum_tree<From>(inputs, first, last, sum);
    for (const View& addend : epilogue.addends) {
      for (std::size_t i = first; i < last; i += hn::Lanes(d)) {
        float* const at = sum.data() + (i - first);
        const auto more = load_at<decltype(d), float>(d, addend, i, last);
        hn::StoreU(hn::Add(hn::LoadU(d, at), more), d, at);
      }
    }
    if (around_caches && last - first == kBlock) {
      stream_block<To>(epilogue.destination, first, sum);
    } else if (!written) {
      store_block<To>(epilogue.destination, first, last, sum);
    }
    if (norm != nullptr && excluded.drop(sum, first, last)) add_norm(sum, last - first, *norm);
  }
  if (around_caches) hwy::FlushStream();
}

/// Elements [begin, end) of the reduction; adds the squares to `norm` unless it is null.
void reduce_range(std::span<const View> inputs, const ReduceEpilogue& epilogue, std::size_t begin,
                  std::size_t end, ExactSum* norm) {
  dispatch(inputs.front().dtype(), [&](auto from_type) {
    dispatch(epilogue.destination.dtype(), [&](auto to_type) {
      using From = typename decltype(from_type)::type;
      using To = typename decltype(to_type)::type;
      reduce_blocks<From, To>(inputs, epilogue, begin, end, norm);
    });
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(reduce_range);

namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements; a multiple of kBlock

/// Whether a range's result may overwrite another range's addend.
bool shrinks_in_place(const ReduceEpilogue& epilogue) {
  const View& destination = epilogue.destination;
  for (const View& addend : epilogue.addends) {
    if (addend.data() == destination.data() && addend.dtype() != destination.dtype()) return true;
  }
  return false;
}

}  // namespace

void tree_reduce(std::span<const View> inputs, const ReduceEpilogue& epilogue, int threads) {
  check_tree_reduce(inputs, epilogue);
  std::mutex norm_mutex;
  parallel_for(shrinks_in_place(epilogue) ? 1 : threads, epilogue.destination.count(), kGrain,
               [&](std::int64_t begin, std::int64_t end) {
                 ExactSum norm;
                 HWY_DYNAMIC_DISPATCH(reduce_range)
                 (inputs, epilogue, static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
                  epilogue.norm ? &norm : nullptr);
                 if (!epilogue.norm) return;
                 const std::lock_guard lock(norm_mutex);
                 epilogue.norm->add(norm);
               });
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
