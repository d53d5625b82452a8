// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/consecutive.h"
#include "collectives/backends.h"
#include "collectives/collective_backend.h"
#include "collectives/long_wait.h"
#include "collectives/ranks_of_hosts.h"
#include "collectives/stores.h"
#include "device/cpu/primitives.h"

namespace zero::store_only {
namespace {

[[noreturn]] void refuse(int rank, Operation operation, std::string_view purpose) {
  fail(
      "{}: the ranks are on several hosts and have only a store in common; to compute on the CPU "
      "there, start them with mpirun",
      call_name(rank, operation, purpose));
}

std::string_view bytes_of(View view) {
  return {static_cast<const char*>(view.data()), static_cast<std::size_t>(view.bytes())};
}

/// The ranks of a group that meet in a store.
struct Members {
  StoreRank self;
  std::string name;                ///< all keys of the group begin with it
  std::vector<std::string> hosts;  ///< of each rank
};

/// Moves small values of host memory through the store, which keeps them all. Reductions and
/// exchanges of gradients are refused, with the remedy.
class StoreTransport final : public Transport {
 public:
  StoreTransport(Members group, std::shared_ptr<const CallContext> context)
      : group_(std::move(group)), context_(std::move(context)) {}

  void set_step(std::int64_t step) override { step_ = step; }

  void all_gather(View mine, const Slices& full, std::string_view purpose) override {
    start(Operation::all_gather, purpose);
    const auto texts = all_gather_texts(bytes_of(mine));
    for (int peer = 0; peer < full.world(); ++peer) {
      put(texts[static_cast<std::size_t>(peer)], full.of(peer));
    }
  }

  void all_reduce(View values, ReduceOp op, std::string_view purpose) override {
    start(Operation::all_reduce, purpose);
    std::vector<std::vector<std::byte>> memory;
    std::vector<View> inputs;
    for (const std::string& text : all_gather_texts(bytes_of(values))) {
      auto& bytes = memory.emplace_back(std::max<std::size_t>(text.size(), 1));
      const View input(bytes.data(), values.count(), values.dtype(), nullptr);
      put(text, input);
      inputs.push_back(input);
    }
    cpu::combine(inputs, op, values);
  }

  void broadcast(View values, int root, std::string_view purpose) override {
    start(Operation::broadcast, purpose);
    Store& store = group_.self.store;
    if (group_.self.rank == root) return store.set(key_of(root), bytes_of(values));
    wait({root});
    put(store.get(key_of(root), group_.self.timeout), values);
  }

  void barrier(std::string_view purpose) override {
    start(Operation::barrier, purpose);
    static_cast<void>(all_gather_texts(""));
  }

  void reduce_scatter(const Slices&, const ReduceEpilogue&, View,
                      std::string_view purpose) override {
    refuse(group_.self.rank, Operation::reduce_scatter, purpose);
  }
  void all_to_all(const Slices&, const Slices&, std::string_view purpose) override {
    refuse(group_.self.rank, Operation::all_to_all, purpose);
  }

 private:
  void start(Operation operation, std::string_view purpose) {
    who_ = call_name(group_.self.rank, operation, purpose);
    key_ = fmt::format("{}/{}/{}", group_.name, name_of(operation), calls_++);
  }
  std::string key_of(int rank) const { return fmt::format("{}/{}", key_, rank); }
  std::vector<std::string> keys_of(const std::vector<int>& ranks) const {
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(key_of(rank));
    return keys;
  }

  /// Returns every rank's bytes, this one's included.
  std::vector<std::string> all_gather_texts(std::string_view mine) {
    const StoreRank& self = group_.self;
    self.store.set(key_of(self.rank), mine);
    const std::vector<int> all = consecutive(0, self.size);
    wait(all);
    return self.store.get_all(keys_of(all), self.timeout);
  }

  /// Returns once `ranks` have set their keys. Throws zero::Error if one is lost, the group has
  /// failed, or the timeout passes. Waits in short intervals, because a wait in the store does not
  /// notice a failed group.
  void wait(const std::vector<int>& ranks) {
    constexpr std::chrono::milliseconds kBetweenLooks{1000};
    const std::vector<std::string> keys = keys_of(ranks);
    LongWait wait(*context_);
    for (;;) {
      try {
        return group_.self.store.wait(keys, wait.until_due(kBetweenLooks));
      } catch (const Error&) {
        if (group_.self.store.lost()) throw;
      }
      look(wait, ranks);
    }
  }

  void look(LongWait& wait, const std::vector<int>& ranks) {
    const std::string failed = group_.name + "/failed";
    if (const auto reason = group_.self.store.find(failed))
      fail("{}: the group has failed: {}", who_, *reason);
    try {
      wait.look([&] {
        Waiting waiting{.who = who_, .step = step_};
        for (const int rank : ranks) {
          if (group_.self.store.find(key_of(rank))) continue;
          const std::string& host = group_.hosts[static_cast<std::size_t>(rank)];
          waiting.absent.push_back({rank, fmt::format("on host {}: unknown", host)});
        }
        return waiting;
      });
    } catch (const Error& error) {
      group_.self.store.set(failed, error.what());
      throw;
    }
  }

  void put(const std::string& bytes, View to) const {
    ZERO_CHECK(std::ssize(bytes) == to.bytes(),
               "{}: a rank gave {} bytes, expected {}; all ranks must make the same call", who_,
               bytes.size(), to.bytes());
    if (!to.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
  }

  Members group_;
  std::shared_ptr<const CallContext> context_;
  std::int64_t step_ = CallContext::kNoStep;
  int calls_ = 0;
  // The current call.
  std::string who_;
  std::string key_;
};

/// A rank of a group that has only a store in common, like ranks on hosts without MPI before NCCL
/// connects their GPUs; carries the values they must agree on before.
class StoreBackend final : public BlockingBackend {
 public:
  explicit StoreBackend(Members group,
                        std::shared_ptr<CallContext> context = std::make_shared<CallContext>())
      : BlockingBackend(std::move(context)),
        group_(std::move(group)),
        store_(group_.self.store, group_.name + "/user") {
    set_transport(std::make_shared<StoreTransport>(group_, this->context()));
  }

  int rank() const override { return group_.self.rank; }
  int size() const override { return group_.self.size; }
  int local_rank() const override { return rank_on_host(group_.hosts, rank()); }
  int local_size() const override { return ranks_on_host(group_.hosts, rank()); }
  BackendKind kind() const override { return BackendKind::store; }
  std::string_view description() const override { return "the store of rank 0"; }
  Store& store() override { return store_; }

  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    const std::string name = fmt::format("{}/split/{}", group_.name, splits_++);
    const StoreSplit part = zero::split(group_.self, name, color, key);
    if (part.rank < 0) return nullptr;
    Members members{
        .self = group_.self, .name = fmt::format("{}/{}", name, part.members.front()), .hosts = {}};
    members.self.rank = part.rank;
    members.self.size = static_cast<int>(part.members.size());
    for (const int member : part.members) {
      members.hosts.push_back(group_.hosts[static_cast<std::size_t>(member)]);
    }
    auto backend = std::make_shared<StoreBackend>(std::move(members), context());
    backend->set_members(part.members);
    return backend;
  }

  // Refused before anything is queued.
  void reduce_scatter(const Slices&, const ReduceEpilogue&, View, Stream&,
                      const Tag& tag) override {
    refuse(rank(), Operation::reduce_scatter, tag.purpose);
  }
  void all_to_all(const Slices&, const Slices&, Stream&, const Tag& tag) override {
    refuse(rank(), Operation::all_to_all, tag.purpose);
  }

 private:
  Members group_;
  PrefixStore store_;
  int splits_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> world(const StoreRank& self, std::vector<std::string> hosts) {
  return std::make_unique<Communicator>(
      std::make_shared<StoreBackend>(Members{self, "store_only", std::move(hosts)}));
}

}  // namespace zero::store_only
