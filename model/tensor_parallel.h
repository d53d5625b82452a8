// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/traffic.h"
#include "device/device.h"
#include "model/row_cut.h"

namespace zero {

/// How the layers of a tensor group work together. No bit depends on `overlap`, nor, without
/// sequence parallelism, on `chunks`; what is left, like the tensor degree, changes the order of
/// some sums.
struct TensorOptions {
  /// Residual stream, norms and what row-parallel layers give are cut by rows over the group.
  bool sequence_parallel = false;
  /// Parts of the rows, at most, of which one is computed while the sum of another travels.
  int chunks = 2;
  /// false: every collective is waited for where it is issued.
  bool overlap = true;
};

/// A layer's view of its tensor group, and how activations, rows x width, cross it. A group's ranks
/// compute the same micro-batch. Without sequence parallelism a rank's own rows are all of them;
/// with it they are its share (RowCut). A group of one moves nothing.
///
/// Collectives go to device.communication(), behind the work submitted to compute so far; compute
/// goes on until wait(). Views must stay as they are until then. Every rank makes the same calls in
/// the same order. prepare() what will be summed, then allocate() once.
class TensorParallel {
 public:
  /// For micro-batches of `rows` rows; `group` and `device` must outlive this. Throws zero::Error
  /// if `options` ask for more parts than `rows` allow.
  TensorParallel(Communicator& group, Device& device, std::int64_t rows,
                 const TensorOptions& options);

  int rank() const { return group_.rank(); }
  int ranks() const { return group_.size(); }
  bool sequence_parallel() const { return options_.sequence_parallel; }
  const RowCut& cut() const { return cut_; }
  int chunks() const { return cut_.chunks(); }
  std::int64_t rows() const { return cut_.rows(); }
  std::int64_t own_rows() const;
  /// Where the chunk's rows lie in a view of this rank's own.
  Slices::Range own_rows(int chunk) const;
  Communicator& group() { return group_; }
  Device& device() { return device_; }

  /// For sum() of rows of `width` elements.
  void prepare(std::int64_t width, DType dtype);
  /// Takes the workspace, charged to MemoryClass::communication.
  void allocate();

  /// Activations as all rows and as this rank's own; without sequence parallelism the same view.
  struct Rows {
    View all;
    View own;
    std::int64_t width = 0;
  };
  /// The chunk's rows of `all`, each rank's part of a sum, are added over the group by the fixed
  /// tree in fp32 and rounded once. The sum is left in the chunk's own rows (`all` is then read
  /// only, and must stay until the event). A reduce-scatter; without sequence parallelism that and
  /// an all-gather, booked as the all-reduce they are.
  Event sum(int chunk, const Rows& rows, std::string_view label);
  /// The chunk's rows of `all` from the ranks' own. Nothing without sequence parallelism.
  Event gather(int chunk, const Rows& rows, std::string_view label);
  /// Adds fp32 values over the group, in place, by the fixed tree.
  Event sum(View values, std::string_view label);
  /// Rank r's part of `values` reaches every rank: `ranges` are the ranks' parts.
  Event gather(View values, std::vector<Slices::Range> ranges, std::string_view label);

  /// Adds `values` over `holders`, the ranks of the group that hold the same parameters, in place:
  /// by the fixed tree in fp32, rounded once, the same bits on all. Of any dtype prepare()d for.
  void prepare(Communicator& holders, std::int64_t count, DType dtype);
  Event sum_over(Communicator& holders, View values, std::string_view label);

  /// Compute goes on after `event`.
  void wait(const Event& event);
  /// All chunks, and compute waits.
  void sum_rows(const Rows& rows, std::string_view label);
  void gather_rows(const Rows& rows, std::string_view label);

  /// Bytes that this rank sends for one call over all chunks, as the recorder counts them: of a sum
  /// and a gather of rows of `width` elements, of a sum of `count` fp32 values.
  TrafficCounter sum_traffic(std::int64_t width, DType dtype) const;
  TrafficCounter gather_traffic(std::int64_t width, DType dtype) const;
  TrafficCounter sum_traffic(std::int64_t count) const;
  /// The same of sum_over() of `bytes` over `ranks` holders.
  static TrafficCounter all_reduce_traffic(std::int64_t bytes, int ranks);

  /// Elements [range) of rows of `width` elements.
  static View rows_of(View view, const Slices::Range& range, std::int64_t width) {
    return view.slice(range.begin * width, range.count * width);
  }

 private:
  void reserve(Communicator& group, const Slices& slices);
  /// In place over `group`, booked as the all-reduce it is.
  void all_reduce(Communicator& group, const Slices& slices, std::string_view label);
  View workspace(Communicator& group, const Slices& slices) const;
  Slices shares(int chunk, View all, std::int64_t width) const;
  void check(std::string_view call, const Rows& rows, std::string_view label) const;
  /// Communication goes on after what compute was given so far.
  Stream& begin();
  Event end();

  Communicator& group_;
  Device& device_;
  TensorOptions options_;
  RowCut cut_;
  std::int64_t workspace_bytes_ = 0;
  Buffer workspace_;
};

}  // namespace zero
