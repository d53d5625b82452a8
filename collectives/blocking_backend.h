// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/collective_backend.h"
#include "collectives/transport.h"

namespace zero {

/// Runs a Transport as work on streams: each collective blocks its stream until the collective is
/// over. A stream with a thread of its own overlaps collectives with computation. Derived classes
/// connect the ranks and set the transport before the first collective.
class BlockingBackend : public CollectiveBackend {
 public:
  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override;
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override;
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void barrier(Stream& stream, const Tag& tag) override;

 protected:
  using CollectiveBackend::CollectiveBackend;
  /// Queued work keeps the transport, and all that the transport owns, alive.
  void set_transport(std::shared_ptr<Transport> transport) { transport_ = std::move(transport); }

 private:
  /// Submits work(transport, purpose).
  template <typename Work>
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);

  std::shared_ptr<Transport> transport_;
};

}  // namespace zero
