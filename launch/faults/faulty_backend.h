// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/forwarding_backend.h"
#include "launch/faults/fault_injector.h"

namespace zero {

/// Asks a FaultInjector before each collective of several ranks, which may leave it out, make it
/// smaller on this rank or flip a bit of its values; passes all others on as they are. Its splits
/// do likewise.
class FaultyBackend final : public ForwardingBackend {
 public:
  /// `faults` must outlive this and its splits. Flips are for values in host memory.
  FaultyBackend(std::shared_ptr<CollectiveBackend> inner, FaultInjector& faults);

  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override;
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override;
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void barrier(Stream& stream, const Tag& tag) override;

 private:
  /// Those of a call of which a bit may be flipped.
  struct Values {
    View given{};
    View brought{};
  };
  /// Passes the call on, by `whole` or `less`, or not, as the injector answers.
  template <typename Whole, typename Less>
  void alter(Operation operation, const Values& values, Stream& stream, const Tag& tag,
             const Whole& whole, const Less& less);

  FaultInjector& faults_;
};

/// `inner` itself, if no fault of the rank alters its collectives.
std::shared_ptr<CollectiveBackend> with_faults(std::shared_ptr<CollectiveBackend> inner,
                                               FaultInjector& faults);

/// Flips one bit of `values`, not empty, in host memory: the highest of the mantissa of a floating
/// number, so that it stays finite, or the lowest of an integer, in the first number behind the
/// middle that is not 0; if all are 0, in the middle.
void flip_bit(const View& values);

}  // namespace zero
