// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/blocking_backend.h"
#include "collectives/long_wait.h"
#include "collectives/prefix_store.h"

namespace zero::control {

/// The ranks of a group that meet in a store.
struct Members {
  StoreSeat seat;
  std::string name;                ///< all keys of the group begin with it
  std::vector<std::string> hosts;  ///< of each rank
};

/// Moves small values of host memory through the store, which keeps them all. Reductions and
/// exchanges of gradients are refused, with the remedy.
class ControlTransport final : public Transport {
 public:
  ControlTransport(Members group, std::shared_ptr<const CallContext> context)
      : group_(std::move(group)), context_(std::move(context)) {}

  void set_step(std::int64_t step) override { step_ = step; }
  void all_gather(View mine, const Slices& full, std::string_view unit) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view unit) override;
  void all_reduce(View values, ReduceOp op, std::string_view unit) override;
  void all_to_all(const Slices& send, const Slices& receive, std::string_view unit) override;
  void broadcast(View values, int root, std::string_view unit) override;
  void barrier(std::string_view unit) override;

 private:
  void start(Operation operation, std::string_view unit);
  /// Gives each rank's bytes, this one's among them.
  std::vector<std::string> exchange(std::string_view mine);
  /// Returns once `ranks` have come: have set their keys. Throws zero::Error if one is lost, the
  /// group has failed, or the time is over.
  void wait(const std::vector<int>& ranks);
  void look(LongWait& wait, const std::vector<int>& ranks);
  std::string key_of(int rank) const { return fmt::format("{}/{}", key_, rank); }
  void put(const std::string& bytes, View to) const;

  Members group_;
  std::shared_ptr<const CallContext> context_;
  std::int64_t step_ = CallContext::kNoStep;
  int calls_ = 0;
  // Of the call under way.
  std::string who_;
  std::string key_;
};

/// A rank of a group whose ranks have nothing but a store in common, as hosts without MPI do until
/// their GPUs have met. For what they must agree on before.
class ControlBackend final : public BlockingBackend {
 public:
  explicit ControlBackend(Members group,
                          std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return group_.seat.rank; }
  int size() const override { return group_.seat.size; }
  int local_rank() const override;
  int local_size() const override;
  std::string_view name() const override { return "control"; }
  std::string_view transport() const override { return "the store of rank 0"; }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  Store& store() override { return store_; }
  // Refused before anything is queued.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override;
  /// There is no reduce_scatter to need one.
  std::int64_t reduce_scatter_workspace(const Slices& /*full*/) const override { return 0; }

 private:
  Members group_;
  PrefixStore store_;
  int splits_ = 0;
};

}  // namespace zero::control
