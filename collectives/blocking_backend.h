// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/collective_backend.h"
#include "collectives/transport.h"

namespace zero {

/// Runs a Transport as work on streams: each collective blocks the stream it is given until it is
/// over. A stream that is a thread of its own overlaps it with computation. Derived classes say how
/// the ranks found each other, and set the transport before the first collective.
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
  /// Queued work keeps the transport alive, with what it needs.
  void set_transport(std::shared_ptr<Transport> transport) { transport_ = std::move(transport); }

 private:
  /// Submits work(transport, unit).
  template <typename Work>
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);

  std::shared_ptr<Transport> transport_;
};

}  // namespace zero
