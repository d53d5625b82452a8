// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "collectives/decorator.h"

namespace zero {

/// One collective as it was asked for.
struct CollectiveRecord {
  Operation operation = Operation::barrier;
  Operation counted_as = Operation::barrier;
  std::string unit;
  DType dtype = DType::fp32;
  std::int64_t total_bytes = 0;  ///< payload over all slices
  std::int64_t sent_bytes = 0;   ///< what one rank sends (Communicator::sent_bytes)

  friend bool operator==(const CollectiveRecord&, const CollectiveRecord&) = default;
};

/// Bytes one rank has sent, per kind of traffic.
class TrafficCounter {
 public:
  void add(Operation counted_as, std::int64_t bytes) {
    bytes_[static_cast<std::size_t>(counted_as)] += bytes;
  }
  void add(const TrafficCounter& other);
  std::int64_t of(Operation operation) const { return bytes_[static_cast<std::size_t>(operation)]; }
  std::int64_t total() const;
  TrafficCounter since(const TrafficCounter& earlier) const;

 private:
  std::array<std::int64_t, 6> bytes_{};
};

/// A decorator: passes every call on to `inner` and notes it, in order. Counting is always on; the
/// list of records only when `keep_records` is set (tests, post-mortems).
class RecordingCommunicator final : public CommunicatorDecorator {
 public:
  enum class Keep { counts, records };
  /// `inner` must outlive this.
  RecordingCommunicator(Communicator& inner, Keep keep);

  const std::vector<CollectiveRecord>& records() const { return records_; }
  const TrafficCounter& traffic() const { return traffic_; }
  void clear();

 protected:
  void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                         Stream& stream, const Tag& tag) override;
  void do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                     const Tag& tag) override;
  void do_broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void do_barrier(Stream& stream, const Tag& tag) override;

 private:
  void note(Operation operation, const Tag& tag, DType dtype, std::int64_t total_bytes);

  Keep keep_;
  std::vector<CollectiveRecord> records_;
  TrafficCounter traffic_;
};

}  // namespace zero
