// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/traced_communicator.h"

#include <fmt/format.h>

namespace zero {

template <typename Body>
void TracedCommunicator::timed(const Call& call, const Body& body) {
  if (!listener_.listens() || size() == 1) return body();
  const Mark begin = call.stream.mark();
  body();
  listener_.collective({.name = fmt::format("{}({})", name_of(call.operation), call.tag.unit),
                        .bytes = call.bytes,
                        .begin = begin,
                        .end = call.stream.mark()});
}

void TracedCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream,
                                       const Tag& tag) {
  timed({Operation::all_gather, full.total() * size_of(mine.dtype()), stream, tag},
        [&] { inner_.all_gather(mine, full, stream, tag); });
}

void TracedCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                           View workspace, Stream& stream, const Tag& tag) {
  timed({Operation::reduce_scatter, full.total() * size_of(full.buffer.dtype()), stream, tag},
        [&] { inner_.reduce_scatter(full, epilogue, workspace, stream, tag); });
}

void TracedCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  timed({Operation::all_reduce, values.bytes(), stream, tag},
        [&] { inner_.all_reduce(values, op, stream, tag); });
}

void TracedCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                       const Tag& tag) {
  timed({Operation::all_to_all, send.total() * size_of(send.buffer.dtype()), stream, tag},
        [&] { inner_.all_to_all(send, receive, stream, tag); });
}

void TracedCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  timed({Operation::broadcast, values.bytes(), stream, tag},
        [&] { inner_.broadcast(values, root, stream, tag); });
}

void TracedCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  timed({Operation::barrier, 0, stream, tag}, [&] { inner_.barrier(stream, tag); });
}

}  // namespace zero
