// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/faulty_backend.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace zero {
namespace {

/// The first rank behind `rank` whose slice is not empty: `rank` itself, if no other one is.
int next_with_values(const Slices& slices, int rank) {
  for (int i = 1; i < slices.world(); ++i) {
    const int other = (rank + i) % slices.world();
    if (!slices.of(other).empty()) return other;
  }
  return rank;
}

/// The next slice of another rank that has values; an empty view if none has.
View of_another(const Slices& slices, int rank) {
  const int other = next_with_values(slices, rank);
  return other == rank ? slices.of(rank).slice(0, 0) : slices.of(other);
}

/// `slices` with one element less in slice `of`, which is not empty.
Slices with_less(Slices slices, int of) {
  --slices.ranges.at(static_cast<std::size_t>(of)).count;
  return slices;
}

View with_less(const View& values) { return values.slice(0, values.count() - 1); }

int top_of_mantissa(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 51;
    case DType::fp32:
      return 22;
    case DType::fp16:
      return 9;
    case DType::bf16:
      return 6;
    default:
      return 0;
  }
}

void flip_on(Stream& stream, const View& values) {
  stream.submit_host("flip a bit", [values] { flip_bit(values); });
}

}  // namespace

void flip_bit(const View& values) {
  const std::int64_t size = size_of(values.dtype());
  const std::span bytes(static_cast<std::byte*>(values.data()),
                        static_cast<std::size_t>(values.bytes()));
  const auto number = [&](std::int64_t i) {
    return bytes.subspan(static_cast<std::size_t>(i * size), static_cast<std::size_t>(size));
  };
  std::int64_t at = values.count() / 2;
  const auto is_zero = [](std::span<const std::byte> of) {
    return std::ranges::all_of(of, [](std::byte b) { return b == std::byte{0}; });
  };
  while (at < values.count() && is_zero(number(at))) ++at;
  if (at == values.count()) at = values.count() / 2;
  const int bit = top_of_mantissa(values.dtype());
  number(at)[static_cast<std::size_t>(bit / 8)] ^= std::byte{1} << (bit % 8);
}

FaultyBackend::FaultyBackend(std::shared_ptr<CollectiveBackend> inner, FaultInjector& faults)
    : ForwardingBackend(std::move(inner)), faults_(faults) {}

std::shared_ptr<CollectiveBackend> FaultyBackend::split(int color, int key) {
  auto part = ForwardingBackend::split(color, key);
  return part ? std::make_shared<FaultyBackend>(std::move(part), faults_) : nullptr;
}

template <typename Whole, typename Less>
void FaultyBackend::alter(Operation operation, const Values& values, Stream& stream, const Tag& tag,
                          const Whole& whole, const Less& less) {
  using enum FaultInjector::Answer;
  const auto answer = size() == 1 ? pass
                                  : faults_.alter({.operation = operation,
                                                   .purpose = tag.purpose,
                                                   .given = values.given.count(),
                                                   .brought = values.brought.count()});
  if (answer == skip) return;
  if (answer == resize) return less();
  if (answer == flip_given) flip_on(stream, values.given);
  whole();
  if (answer == flip_brought) flip_on(stream, values.brought);
}

void FaultyBackend::all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  alter(
      Operation::all_gather, {mine, of_another(full, rank())}, stream, tag,
      [&] { ForwardingBackend::all_gather(mine, full, stream, tag); },
      [&] {
        ForwardingBackend::all_gather(with_less(mine), with_less(full, rank()), stream, tag);
      });
}

void FaultyBackend::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                   View workspace, Stream& stream, const Tag& tag) {
  const int whose = next_with_values(full, rank());
  const View given = full.of(whose);
  alter(
      Operation::reduce_scatter, {given, epilogue.destination}, stream, tag,
      [&] { ForwardingBackend::reduce_scatter(full, epilogue, workspace, stream, tag); },
      [&] {
        const bool own = whose == rank();
        ForwardingBackend::reduce_scatter(with_less(full, whose),
                                          own ? epilogue.slice(0, given.count() - 1) : epilogue,
                                          workspace, stream, tag);
      });
}

void FaultyBackend::all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  alter(
      Operation::all_reduce, {values, values}, stream, tag,
      [&] { ForwardingBackend::all_reduce(values, op, stream, tag); },
      [&] { ForwardingBackend::all_reduce(with_less(values), op, stream, tag); });
}

void FaultyBackend::all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                               const Tag& tag) {
  alter(
      Operation::all_to_all, {of_another(send, rank()), of_another(receive, rank())}, stream, tag,
      [&] { ForwardingBackend::all_to_all(send, receive, stream, tag); },
      [&] {
        ForwardingBackend::all_to_all(with_less(send, next_with_values(send, rank())), receive,
                                      stream, tag);
      });
}

void FaultyBackend::broadcast(View values, int root, Stream& stream, const Tag& tag) {
  const View brought = rank() == root ? values.slice(0, 0) : values;
  alter(
      Operation::broadcast, {values, brought}, stream, tag,
      [&] { ForwardingBackend::broadcast(values, root, stream, tag); },
      [&] { ForwardingBackend::broadcast(with_less(values), root, stream, tag); });
}

void FaultyBackend::barrier(Stream& stream, const Tag& tag) {
  const auto whole = [&] { ForwardingBackend::barrier(stream, tag); };
  alter(Operation::barrier, {}, stream, tag, whole, whole);
}

std::shared_ptr<CollectiveBackend> with_faults(std::shared_ptr<CollectiveBackend> inner,
                                               FaultInjector& faults) {
  if (!faults.alters_collectives()) return inner;
  return std::make_shared<FaultyBackend>(std::move(inner), faults);
}

}  // namespace zero
