// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "collectives/collective_backend.h"

namespace zero {

/// Moves values between the memory of this process and that of its peers. Every call blocks the
/// caller until this rank's part of the collective is over; one thread at a time. Arguments are
/// those of Communicator, already checked; `purpose` names the call in errors. A new transport is a
/// class derived from this one, and a BlockingBackend that connects its ranks and hands it over
/// with set_transport() (CONTRIBUTING.md).
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Sets the step of later calls, which messages about long waits name.
  virtual void set_step(std::int64_t step) = 0;

  virtual void all_gather(View mine, const Slices& full, std::string_view purpose) = 0;
  virtual void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                              std::string_view purpose) = 0;
  virtual void all_reduce(View values, ReduceOp op, std::string_view purpose) = 0;
  virtual void all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) = 0;
  virtual void broadcast(View values, int root, std::string_view purpose) = 0;
  virtual void barrier(std::string_view purpose) = 0;
};

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
