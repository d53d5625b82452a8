// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "collectives/decorator.h"

namespace zero {

/// One collective between two marks of its stream.
struct CollectiveRun {
  std::string name;        ///< "all_gather(h.3)"
  std::int64_t bytes = 0;  ///< payload over all slices
  Mark begin;
  Mark end;
};

/// Hears of collectives, on the host thread that issues them.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  /// Asked before each: whether it is to be timed.
  virtual bool listens() const noexcept = 0;
  /// It is submitted; when it ran, the marks tell later.
  virtual void collective(CollectiveRun run) noexcept = 0;
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
