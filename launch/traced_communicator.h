// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/decorator.h"

namespace zero {

/// One collective that has run.
struct CollectiveRun {
  using Time = std::chrono::steady_clock::time_point;
  std::string_view name;   ///< "all_gather(h.3)"
  std::int64_t bytes = 0;  ///< payload over all slices
  Time begin;
  Time end;
  unsigned kept = 0;  ///< what keeps() said when it was issued
};

/// Hears of collectives.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  /// Asked where a collective is issued, on the host thread; 0: it is not timed.
  virtual unsigned keeps() const noexcept = 0;
  /// After the fact, on the thread that ran it.
  virtual void collective(const CollectiveRun& run) noexcept = 0;
};

/// A decorator: passes every call on to `inner` and times it on its stream. At world 1, where
/// nothing moves, nothing is heard.
class TracedCommunicator final : public CommunicatorDecorator {
 public:
  /// Both must outlive this and what it has submitted.
  TracedCommunicator(Communicator& inner, CollectiveListener& listener)
      : CommunicatorDecorator(inner), listener_(listener) {}

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
  struct Call {
    Operation operation;
    std::int64_t bytes;
    Stream& stream;
    const Tag& tag;
  };
  /// Runs `body`, which submits the collective, between two marks on its stream.
  template <typename Body>
  void timed(const Call& call, const Body& body);

  CollectiveListener& listener_;
};

}  // namespace zero
