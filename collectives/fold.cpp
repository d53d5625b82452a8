// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/fold.h"

#include <algorithm>

#include "device/cpu/primitives.h"

namespace zero {
namespace {

constexpr std::int64_t kBlock = 32 * kNormBlock;  // elements at a time: they stay in a cache

std::vector<View> pick(const std::vector<View>& values, const HostPlan::Fold& fold) {
  std::vector<View> inputs;
  for (const int value : fold) inputs.push_back(values[static_cast<std::size_t>(value)]);
  return inputs;
}

bool of_one_dtype(std::span<const View> views) {
  return std::ranges::all_of(views, [&](View v) { return v.dtype() == views[0].dtype(); });
}

/// Memory for the values of one block.
class Room {
 public:
  Room(std::size_t places, DType dtype)
      : dtype_(dtype), bytes_(places * static_cast<std::size_t>(kBlock * size_of(dtype))) {}

  View place(std::size_t index, std::int64_t count) {
    return {bytes_.data() + static_cast<std::int64_t>(index) * kBlock * size_of(dtype_), count,
            dtype_, nullptr};
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

}  // namespace

void fold(const HostPlan& plan, std::span<const View> subtrees, const ReduceEpilogue& epilogue) {
  const auto& folds = plan.folds();
  if (folds.size() == 1 && of_one_dtype(subtrees)) return cpu::tree_reduce(subtrees, epilogue);
  Room room(subtrees.size() + folds.size(), DType::fp32);
  const std::int64_t all = epilogue.destination.count();
  for (std::int64_t begin = 0; begin < all; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, all - begin);
    std::vector<View> values;
    for (const View& subtree : subtrees) {
      values.push_back(subtree.slice(begin, count));
      if (subtree.dtype() == DType::fp32) continue;
      const View exact = room.place(values.size() - 1, count);
      cpu::convert(values.back(), exact);
      values.back() = exact;
    }
    for (const HostPlan::Fold& each : std::span(folds).first(folds.size() - 1)) {
      const View sum = room.place(values.size(), count);
      cpu::tree_reduce(pick(values, each), {.addends = {}, .destination = sum, .norm = nullptr});
      values.push_back(sum);
    }
    cpu::tree_reduce(pick(values, folds.back()), epilogue.slice(begin, count));
  }
}

void fold(const HostPlan& plan, ReduceOp op, std::span<const View> subtrees, View destination) {
  const auto& folds = plan.folds();
  if (folds.size() == 1) return cpu::combine(subtrees, op, destination);
  Room room(subtrees.size() + folds.size(), destination.dtype());
  for (std::int64_t begin = 0; begin < destination.count(); begin += kBlock) {
    const std::int64_t count = std::min(kBlock, destination.count() - begin);
    std::vector<View> values;
    for (const View& subtree : subtrees) values.push_back(subtree.slice(begin, count));
    for (const HostPlan::Fold& each : std::span(folds).first(folds.size() - 1)) {
      const View result = room.place(values.size(), count);
      cpu::combine(pick(values, each), op, result);
      values.push_back(result);
    }
    cpu::combine(pick(values, folds.back()), op, destination.slice(begin, count));
  }
}

}  // namespace zero
