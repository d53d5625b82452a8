// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/recording.h"

#include <numeric>

namespace zero {

std::int64_t TrafficCounter::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
}

void TrafficCounter::add(const TrafficCounter& other) {
  for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] += other.bytes_[i];
}

TrafficCounter TrafficCounter::since(const TrafficCounter& earlier) const {
  TrafficCounter difference;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    difference.bytes_[i] = bytes_[i] - earlier.bytes_[i];
  }
  return difference;
}

RecordingCommunicator::RecordingCommunicator(Communicator& inner, Keep keep)
    : CommunicatorDecorator(inner), keep_(keep) {}

void RecordingCommunicator::clear() {
  records_.clear();
  traffic_ = {};
}

void RecordingCommunicator::note(Operation operation, const Tag& tag, DType dtype,
                                 std::int64_t total_bytes) {
  const Operation counted_as = tag.counted_as.value_or(operation);
  const std::int64_t sent = sent_bytes(operation, total_bytes, size());
  traffic_.add(counted_as, sent);
  if (keep_ == Keep::records) {
    records_.push_back({operation, counted_as, tag.unit, dtype, total_bytes, sent});
  }
}

void RecordingCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream,
                                          const Tag& tag) {
  inner_.all_gather(mine, full, stream, tag);
  note(Operation::all_gather, tag, mine.dtype(), full.total() * size_of(mine.dtype()));
}

void RecordingCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                              View workspace, Stream& stream, const Tag& tag) {
  inner_.reduce_scatter(full, epilogue, workspace, stream, tag);
  const DType dtype = full.buffer.dtype();
  note(Operation::reduce_scatter, tag, dtype, full.total() * size_of(dtype));
}

void RecordingCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream,
                                          const Tag& tag) {
  inner_.all_reduce(values, op, stream, tag);
  note(Operation::all_reduce, tag, values.dtype(), values.bytes());
}

void RecordingCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                          const Tag& tag) {
  inner_.all_to_all(send, receive, stream, tag);
  const DType dtype = send.buffer.dtype();
  note(Operation::all_to_all, tag, dtype, send.total() * size_of(dtype));
}

void RecordingCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  inner_.broadcast(values, root, stream, tag);
  note(Operation::broadcast, tag, values.dtype(), values.bytes());
}

void RecordingCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  inner_.barrier(stream, tag);
  note(Operation::barrier, tag, DType::u8, 0);
}

}  // namespace zero
