// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"
#include "collectives/long_wait.h"
#include "collectives/prefix_store.h"

namespace zero::control {

/// A group whose ranks have nothing but a store in common, as hosts without MPI do until their GPUs
/// have met. For what they must agree on before: small values in host memory, gathered, combined
/// and broadcast through the store, which keeps them all. It moves no gradients and says so.
class ControlCommunicator final : public Communicator {
 public:
  /// All keys of the group begin with `name`. `hosts`: of each rank.
  ControlCommunicator(const StoreSeat& seat, const std::string& name,
                      std::vector<std::string> hosts,
                      std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return seat_.rank; }
  int size() const override { return seat_.size; }
  int local_rank() const override;
  int local_size() const override;
  std::string_view backend() const override { return "control"; }
  std::string_view transport() const override { return "the store of rank 0"; }
  std::unique_ptr<Communicator> split(int color, int key) override;
  Store& store() override { return store_; }

 protected:
  void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                         Stream& stream, const Tag& tag) override;
  std::int64_t do_reduce_scatter_workspace(const Slices& full) const override;
  void do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                     const Tag& tag) override;
  void do_broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void do_barrier(Stream& stream, const Tag& tag) override;

 private:
  /// One call: who makes it, in which step, and its key in the store.
  struct Job {
    StoreSeat seat;
    std::string who;
    std::int64_t step = CallContext::kNoStep;
    std::string key;
    std::string failed;  ///< the key of the group's failure
    std::vector<std::string> hosts;
    std::shared_ptr<const CallContext> context;

    /// Gives each rank's bytes, this one's among them.
    std::vector<std::string> exchange(std::string_view mine) const;
    /// Returns once `ranks` have come: have set their keys. Throws zero::Error where one is lost,
    /// the group has failed, or the time is over.
    void wait(const std::vector<int>& ranks) const;
    std::string key_of(int rank) const { return fmt::format("{}/{}", key, rank); }

   private:
    bool came(int rank) const;
    void look(LongWait& wait, const std::vector<int>& ranks) const;
  };
  Job job(Operation operation, const Tag& tag);
  [[noreturn]] void refuse(const Job& job) const;

  StoreSeat seat_;
  std::string name_;
  std::vector<std::string> hosts_;
  PrefixStore store_;
  int jobs_ = 0;
};

}  // namespace zero::control
