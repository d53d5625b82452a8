// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/communicator.h"

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
class TracedCommunicator final : public Communicator {
 public:
  /// Both must outlive this and what it has submitted.
  TracedCommunicator(Communicator& inner, CollectiveListener& listener)
      : inner_(inner), listener_(listener) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  std::string_view backend() const override { return inner_.backend(); }
  std::string_view transport() const override { return inner_.transport(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    return inner_.allocate(device, count, dtype, memory_class, label);
  }
  Store& store() override { return inner_.store(); }

 protected:
  void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                         Stream& stream, const Tag& tag) override;
  std::int64_t do_reduce_scatter_workspace(const Slices& full) const override {
    return inner_.reduce_scatter_workspace(full);
  }
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

  Communicator& inner_;
  CollectiveListener& listener_;
};

}  // namespace zero
