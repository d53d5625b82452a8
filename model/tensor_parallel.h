// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/operation.h"
#include "collectives/slices.h"
#include "device/device.h"
#include "model/tensor_options.h"
#include "ops/op_listener.h"
#include "partition/parameter_spec.h"

namespace zero {

/// The partition of a micro-batch's rows into chunks, and of each chunk into shares of the ranks of
/// a tensor group: both even, the longer parts first. A rank's own rows are its shares of all
/// chunks, one after another, so that every rank has work in every chunk. Pure arithmetic.
class RowCut {
 public:
  /// The number of chunks asked for, or fewer if a rank would have no row of some chunk.
  RowCut(std::int64_t rows, int ranks, int chunks);

  std::int64_t rows() const { return rows_; }
  int ranks() const { return ranks_; }
  int chunks() const { return chunks_; }
  Slices::Range chunk(int chunk) const;            ///< of all rows
  Slices::Range share(int chunk, int rank) const;  ///< of all rows
  Slices::Range own(int chunk, int rank) const;    ///< that share's place in the rank's own rows
  std::int64_t own_rows(int rank) const;
  /// A chunk's part of some rows.
  struct Piece {
    int chunk = 0;
    Slices::Range rows;
    bool ends_chunk = false;
  };
  /// The parts of `rows`, in order.
  std::vector<Piece> pieces(const Slices::Range& rows) const;
  /// The distinct lengths of chunks, one or two.
  std::vector<std::int64_t> chunk_rows() const;

 private:
  std::int64_t rows_;
  int ranks_;
  int chunks_;
};

/// The tensor group of the layers, and the collectives on their activations (rows x width). All
/// ranks compute the same micro-batch. Without sequence parallelism a rank's own rows are all rows;
/// with it they are its share (RowCut). A group of one communicates nothing.
///
/// Collectives run on device.communication(), after the work submitted to compute so far; compute
/// continues until wait(), and views must not change until then. Every rank makes the same calls in
/// the same order. Call prepare() for all sums, then allocate() once.
class TensorParallel {
 public:
  /// For micro-batches of `rows` rows; `group` and `device` must outlive this object. Throws
  /// zero::Error if `options` ask for more parts than `rows` allow, or if `group` serves another
  /// device (DeviceClaim).
  TensorParallel(Communicator& group, Device& device, std::int64_t rows,
                 const TensorOptions& options);

  int rank() const { return group_.rank(); }
  int ranks() const { return group_.size(); }
  bool sequence_parallel() const { return options_.sequence_parallel; }
  const RowCut& cut() const { return cut_; }
  int chunks() const { return cut_.chunks(); }
  std::int64_t rows() const { return cut_.rows(); }
  std::int64_t own_rows() const;
  /// The chunk's range in a view of this rank's own rows.
  Slices::Range own_rows(int chunk) const;
  Communicator& group() { return group_; }
  Device& device() { return device_; }
  /// Tells `listener`, which must outlive this, of the activations that collectives read and write.
  /// Null: none.
  void listen(OpListener* listener) { listener_ = listener; }

  /// This rank's even share of the `total` items named `what`. Throws zero::Error if a rank would
  /// have none.
  TensorSlice::Range even_share(std::string_view what, std::int64_t total) const;
  /// The part of the logical tensor `whole` that `held` lists along a dimension; all of it if the
  /// group is one rank.
  ParameterSpec slice(ParameterSpec whole, int dimension,
                      const std::vector<TensorSlice::Range>& held) const;

  /// For sum() of rows of `width` elements.
  void prepare(std::int64_t width, DType dtype);
  /// Allocates the workspace, charged to MemoryClass::communication.
  void allocate();

  /// Activations: all rows, and this rank's own; without sequence parallelism the same view.
  struct Rows {
    View all;
    View own;
    std::int64_t width = 0;
  };
  /// Sums the chunk's rows of `all` over the group, by the fixed tree in fp32, rounded once. The
  /// sum is written to the chunk's rows of `own` (`all` must then not change until the event). A
  /// reduce-scatter; without sequence parallelism also an all-gather, recorded as one all-reduce.
  Event sum(int chunk, const Rows& rows, std::string_view label);
  /// All-gathers the chunk's rows into `all` from the ranks' `own`. A no-op without sequence
  /// parallelism.
  Event gather(int chunk, const Rows& rows, std::string_view label);
  /// Sums fp32 values over the group, in place, by the fixed tree.
  Event sum(View values, std::string_view label);
  /// All-gathers `values` in place; ranges[r] is rank r's part.
  Event gather(View values, std::vector<Slices::Range> ranges, std::string_view label);

  /// Sums `values` over `holders`, the ranks of the group that hold the same parameters, in place,
  /// by the fixed tree in fp32, rounded once: the same bits on all. Any prepared dtype.
  void prepare(Communicator& holders, std::int64_t count, DType dtype);
  Event sum_over(Communicator& holders, View values, std::string_view label);

  /// Compute waits for `event`.
  void wait(const Event& event);
  /// The same for all chunks; compute waits for them.
  void sum_rows(const Rows& rows, std::string_view label);
  void gather_rows(const Rows& rows, std::string_view label);

  /// Bytes that this rank sends for one call over all chunks, as Communicator::traffic() counts
  /// them: for a sum and a gather of rows of `width` elements, and for a sum of `count` fp32
  /// values.
  TrafficCounter sum_traffic(std::int64_t width, DType dtype) const;
  TrafficCounter gather_traffic(std::int64_t width, DType dtype) const;
  TrafficCounter sum_traffic(std::int64_t count) const;
  /// The same for sum_over() of `bytes` over `ranks` holders.
  static TrafficCounter all_reduce_traffic(std::int64_t bytes, int ranks);

  /// Elements [range) of rows of `width` elements.
  static View rows_of(View view, const Slices::Range& range, std::int64_t width) {
    return view.slice(range.begin * width, range.count * width);
  }

 private:
  void claim(Communicator& group);
  void reserve(Communicator& group, const Slices& slices);
  /// In place over `group`, recorded as one all-reduce.
  void all_reduce(Communicator& group, const Slices& slices, std::string_view label);
  View workspace(Communicator& group, const Slices& slices) const;
  Slices shares(int chunk, View all, std::int64_t width) const;
  void check(std::string_view call, const Rows& rows, std::string_view label) const;
  /// Makes communication wait for the work submitted to compute so far.
  Stream& begin();
  /// Of values that are summed in place.
  void notify_update(const View& values) {
    if (listener_ != nullptr) listener_->touches(values, Access::update);
  }
  void notify_move(const View& from, const View& to) {
    if (listener_ != nullptr) listener_->moves(from, to);
  }
  Event end();

  Communicator& group_;
  Device& device_;
  TensorOptions options_;
  RowCut cut_;
  std::list<DeviceClaim> claims_;  ///< of all communicators used
  std::int64_t workspace_bytes_ = 0;
  Buffer workspace_;
  OpListener* listener_ = nullptr;
};

}  // namespace zero
