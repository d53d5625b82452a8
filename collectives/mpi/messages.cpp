// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/messages.h"

#include <numeric>

namespace zero::mpi {

Messages::Messages(Link& link) : link_(link) {
  std::vector<int> all(static_cast<std::size_t>(link.size()));
  std::iota(all.begin(), all.end(), 0);
  link_.compare_among(all);
}

void Messages::call(const Link::Intent& intent, const Link::Work& work) {
  link_.guarded(intent, [&] { link_.compared(intent, work); });
}

void Messages::all_gather(View mine, const Slices& full, std::string_view unit) {
  call({.operation = Operation::all_gather,
        .unit = unit,
        .dtype = mine.dtype(),
        .counts = full.ranges},
       [&] { link_.all_gather(mine, full); });
}

void Messages::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                              std::string_view unit) {
  call({.operation = Operation::reduce_scatter,
        .unit = unit,
        .dtype = full.buffer.dtype(),
        .counts = full.ranges},
       [&] { link_.reduce_scatter(full, epilogue, workspace); });
}

void Messages::all_reduce(View values, ReduceOp op, std::string_view unit) {
  const Slices::Range all{0, values.count()};
  call({.operation = Operation::all_reduce,
        .unit = unit,
        .dtype = values.dtype(),
        .detail = static_cast<int>(op),
        .counts = {&all, 1}},
       [&] { link_.all_reduce(values, op); });
}

void Messages::all_to_all(const Slices& send, const Slices& receive, std::string_view unit) {
  call({.operation = Operation::all_to_all, .unit = unit, .dtype = send.buffer.dtype()},
       [&] { link_.all_to_all(send, receive); });
}

void Messages::broadcast(View values, int root, std::string_view unit) {
  const Slices::Range all{0, values.count()};
  call({.operation = Operation::broadcast,
        .unit = unit,
        .dtype = values.dtype(),
        .detail = root,
        .counts = {&all, 1}},
       [&] { link_.broadcast(values, root); });
}

void Messages::barrier(std::string_view unit) {
  call({.operation = Operation::barrier, .unit = unit}, [&] { link_.barrier(); });
}

}  // namespace zero::mpi
