// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_parallel.h"

#include <algorithm>
#include <utility>

#include "architecture/decoder_shape.h"
#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

Slices::Range even(std::int64_t total, int part, int parts) {
  const TensorSlice::Range range = even_range(total, part, parts);
  return {range.begin, range.count};
}

// A group of one does not cut rows.
TensorOptions effective(const TensorOptions& options, int ranks) {
  TensorOptions of_group = options;
  if (ranks == 1) {
    of_group.sequence_parallel = false;
    of_group.chunks = 1;
  }
  return of_group;
}

Slices even_slices(View values, int ranks) {
  Slices slices{values, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    slices.ranges.push_back(even(values.count(), rank, ranks));
  }
  return slices;
}

}  // namespace

RowCut::RowCut(std::int64_t rows, int ranks, int chunks)
    : rows_(rows),
      ranks_(ranks),
      chunks_(static_cast<int>(
          std::clamp<std::int64_t>(rows / ranks, 1, std::max<std::int64_t>(1, chunks)))) {}

Slices::Range RowCut::chunk(int chunk) const { return even(rows_, chunk, chunks_); }

Slices::Range RowCut::share(int chunk, int rank) const {
  const Slices::Range whole = this->chunk(chunk);
  const Slices::Range part = even(whole.count, rank, ranks_);
  return {whole.begin + part.begin, part.count};
}

Slices::Range RowCut::own(int chunk, int rank) const {
  std::int64_t begin = 0;
  for (int before = 0; before < chunk; ++before) begin += share(before, rank).count;
  return {begin, share(chunk, rank).count};
}

std::int64_t RowCut::own_rows(int rank) const {
  const Slices::Range last = own(chunks_ - 1, rank);
  return last.begin + last.count;
}

std::vector<RowCut::Piece> RowCut::pieces(const Slices::Range& rows) const {
  std::vector<Piece> pieces;
  for (int k = 0; k < chunks_; ++k) {
    const Slices::Range whole = chunk(k);
    const std::int64_t begin = std::max(whole.begin, rows.begin);
    const std::int64_t end = std::min(whole.begin + whole.count, rows.begin + rows.count);
    if (begin < end) pieces.push_back({k, {begin, end - begin}, end == whole.begin + whole.count});
  }
  return pieces;
}

std::vector<std::int64_t> RowCut::chunk_rows() const {
  std::vector<std::int64_t> lengths{chunk(0).count};
  if (const std::int64_t last = chunk(chunks_ - 1).count; last != lengths.front()) {
    lengths.push_back(last);
  }
  return lengths;
}

TensorParallel::TensorParallel(Communicator& group, Device& device, std::int64_t rows,
                               const TensorOptions& options)
    : group_(group),
      device_(device),
      options_(effective(options, group.size())),
      cut_(rows, group.size(), options_.chunks) {
  ZERO_CHECK(options.chunks >= 1, "tensor parallelism in {} chunks, expected at least 1",
             options.chunks);
  ZERO_CHECK(!sequence_parallel() || rows >= ranks(),
             "sequence parallelism cuts the {} row(s) of a micro-batch (batch x sequence) over {} "
             "tensor ranks; give at least one a rank, or turn it off",
             rows, ranks());
  claim(group_);
}

/// A group of one communicates nothing.
void TensorParallel::claim(Communicator& group) {
  if (group.size() > 1) claims_.emplace_back(group, device_, "TensorParallel");
}

std::int64_t TensorParallel::own_rows() const {
  return sequence_parallel() ? cut_.own_rows(rank()) : rows();
}

Slices::Range TensorParallel::own_rows(int chunk) const {
  return sequence_parallel() ? cut_.own(chunk, rank()) : cut_.chunk(chunk);
}

TensorSlice::Range TensorParallel::even_share(std::string_view what, std::int64_t total) const {
  check_share(what, total, ranks());
  return even_range(total, rank(), ranks());
}

ParameterSpec TensorParallel::slice(ParameterSpec whole, int dimension,
                                    const std::vector<TensorSlice::Range>& held) const {
  if (ranks() == 1) return whole;
  whole.slice = TensorSlice{whole.shape, dimension, held};
  whole.shape = whole.slice->local_shape();
  return whole;
}

void TensorParallel::prepare(std::int64_t width, DType dtype) {
  if (ranks() == 1) return;
  const View shape(nullptr, checked_mul(rows(), width), dtype, &device_);
  for (int chunk = 0; chunk < chunks(); ++chunk) reserve(group_, shares(chunk, shape, width));
}

void TensorParallel::prepare(Communicator& holders, std::int64_t count, DType dtype) {
  claim(holders);
  reserve(holders, even_slices(View(nullptr, count, dtype, &device_), holders.size()));
}

void TensorParallel::reserve(Communicator& group, const Slices& slices) {
  workspace_bytes_ = std::max(
      workspace_bytes_, group.reduce_scatter_workspace(slices) * size_of(slices.buffer.dtype()));
}

void TensorParallel::allocate() {
  if (ranks() == 1) return;
  workspace_ = Buffer();
  workspace_ = group_.allocate(device_, workspace_bytes_, DType::u8, MemoryClass::communication,
                               "tensor workspace");
}

Slices TensorParallel::shares(int chunk, View all, std::int64_t width) const {
  Slices slices{all, {}};
  for (int rank = 0; rank < ranks(); ++rank) {
    const Slices::Range share = cut_.share(chunk, rank);
    slices.ranges.push_back({share.begin * width, share.count * width});
  }
  return slices;
}

void TensorParallel::check(std::string_view call, const Rows& rows, std::string_view label) const {
  ZERO_CHECK(rows.all.count() == cut_.rows() * rows.width &&
                 rows.own.count() == own_rows() * rows.width &&
                 rows.own.dtype() == rows.all.dtype(),
             "[rank {}] {}({}): all rows hold {} x {} and this rank's own {} x {}, expected {} and "
             "{} rows of {}",
             rank(), call, label, rows.all.count(), name_of(rows.all.dtype()), rows.own.count(),
             name_of(rows.own.dtype()), cut_.rows(), own_rows(), rows.width);
  ZERO_CHECK(sequence_parallel() || rows.own.data() == rows.all.data(),
             "[rank {}] {}({}): without sequence parallelism a rank's own rows are all of them; "
             "give the same view twice",
             rank(), call, label);
}

Stream& TensorParallel::begin() {
  Stream& communication = device_.communication();
  communication.wait(device_.compute().record());
  return communication;
}

Event TensorParallel::end() {
  const Event done = device_.communication().record();
  if (!options_.overlap) wait(done);
  return done;
}

void TensorParallel::all_reduce(Communicator& group, const Slices& slices, std::string_view label) {
  const Tag tag{std::string(label), Operation::all_reduce};
  const View own = slices.of(group.rank());
  Stream& communication = device_.communication();
  group.reduce_scatter(slices, {{}, own, nullptr}, workspace(group, slices), communication, tag);
  group.all_gather(own, slices, communication, tag);
}

View TensorParallel::workspace(Communicator& group, const Slices& slices) const {
  return workspace_.view().reinterpret(slices.buffer.dtype(),
                                       group.reduce_scatter_workspace(slices));
}

Event TensorParallel::sum(int chunk, const Rows& rows, std::string_view label) {
  check("sum", rows, label);
  if (ranks() == 1) return {};
  Stream& communication = begin();
  const Slices slices = shares(chunk, rows.all, rows.width);
  if (sequence_parallel()) {
    const View own = rows_of(rows.own, cut_.own(chunk, rank()), rows.width);
    notify_move(rows_of(rows.all, cut_.chunk(chunk), rows.width), own);
    group_.reduce_scatter(slices, {{}, own, nullptr}, workspace(group_, slices), communication,
                          {std::string(label), {}});
  } else {
    notify_update(rows_of(rows.all, cut_.chunk(chunk), rows.width));
    all_reduce(group_, slices, label);
  }
  return end();
}

Event TensorParallel::sum_over(Communicator& holders, View values, std::string_view label) {
  if (holders.size() == 1) return {};
  notify_update(values);
  begin();
  all_reduce(holders, even_slices(values, holders.size()), label);
  return end();
}

Event TensorParallel::gather(int chunk, const Rows& rows, std::string_view label) {
  check("gather", rows, label);
  if (!sequence_parallel()) return {};
  Stream& communication = begin();
  const View own = rows_of(rows.own, cut_.own(chunk, rank()), rows.width);
  notify_move(own, rows_of(rows.all, cut_.chunk(chunk), rows.width));
  group_.all_gather(own, shares(chunk, rows.all, rows.width), communication,
                    {std::string(label), {}});
  return end();
}

Event TensorParallel::sum(View values, std::string_view label) {
  if (ranks() == 1) return {};
  notify_update(values);
  group_.all_reduce(values, ReduceOp::sum, begin(), {std::string(label), {}});
  return end();
}

Event TensorParallel::gather(View values, std::vector<Slices::Range> ranges,
                             std::string_view label) {
  if (ranks() == 1) return {};
  const Slices slices{values, std::move(ranges)};
  notify_move(slices.of(rank()), values);
  group_.all_gather(slices.of(rank()), slices, begin(), {std::string(label), {}});
  return end();
}

void TensorParallel::wait(const Event& event) { device_.compute().wait(event); }

void TensorParallel::sum_rows(const Rows& rows, std::string_view label) {
  Event done;
  for (int chunk = 0; chunk < chunks(); ++chunk) done = sum(chunk, rows, label);
  wait(done);
}

void TensorParallel::gather_rows(const Rows& rows, std::string_view label) {
  Event done;
  for (int chunk = 0; chunk < chunks(); ++chunk) done = gather(chunk, rows, label);
  wait(done);
}

TrafficCounter TensorParallel::sum_traffic(std::int64_t width, DType dtype) const {
  TrafficCounter sent;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    const std::int64_t bytes = cut_.chunk(chunk).count * width * size_of(dtype);
    if (sequence_parallel()) {
      sent.add(Operation::reduce_scatter,
               Communicator::sent_bytes(Operation::reduce_scatter, bytes, ranks()));
    } else {
      sent.add(all_reduce_traffic(bytes, ranks()));
    }
  }
  return sent;
}

TrafficCounter TensorParallel::gather_traffic(std::int64_t width, DType dtype) const {
  TrafficCounter sent;
  for (int chunk = 0; chunk < chunks() && sequence_parallel(); ++chunk) {
    const std::int64_t bytes = cut_.chunk(chunk).count * width * size_of(dtype);
    sent.add(Operation::all_gather,
             Communicator::sent_bytes(Operation::all_gather, bytes, ranks()));
  }
  return sent;
}

TrafficCounter TensorParallel::sum_traffic(std::int64_t count) const {
  TrafficCounter sent;
  sent.add(Operation::all_reduce,
           Communicator::sent_bytes(Operation::all_reduce, count * size_of(DType::fp32), ranks()));
  return sent;
}

TrafficCounter TensorParallel::all_reduce_traffic(std::int64_t bytes, int ranks) {
  TrafficCounter sent;
  for (const Operation half : {Operation::reduce_scatter, Operation::all_gather}) {
    sent.add(Operation::all_reduce, Communicator::sent_bytes(half, bytes, ranks));
  }
  return sent;
}

}  // namespace zero
