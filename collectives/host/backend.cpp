// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "collectives/backends.h"
#include "collectives/collective_backend.h"
#include "collectives/host/transport.h"
#include "collectives/stores.h"

namespace zero::host {
namespace {

/// One process of a group of processes of one host. Values travel through memory that the processes
/// share; a Store connects them.
class HostBackend final : public BlockingBackend {
 public:
  /// Collective through self.store; all keys of the group begin with `name`.
  HostBackend(std::shared_ptr<Memory> memory, const std::string& reason, const StoreRank& self,
              const std::string& name,
              std::shared_ptr<CallContext> context = std::make_shared<CallContext>())
      : BlockingBackend(std::move(context)),
        self_(self),
        name_(name),
        store_(self.store, name + "/user"),
        memory_(std::move(memory)) {
    auto joined =
        HostTransport::join(memory_, reason, {self.rank, self.size, {}}, all_gather_texts());
    ZERO_CHECK(joined.transport != nullptr,
               "[rank {}] the ranks cannot share memory: {}; without MPI, processes that compute "
               "on the CPU are those of one host, one user and one container: start others with "
               "mpirun, or as threads with --local-ranks",
               self.rank, joined.refusal);
    host_transport_ = std::move(joined.transport);
    host_transport_->set_context(this->context());
    set_transport(host_transport_);
  }

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  int local_rank() const override { return self_.rank; }
  int local_size() const override { return self_.size; }
  BackendKind kind() const override { return BackendKind::host; }
  std::string_view description() const override { return "shared memory inside the host"; }
  Store& store() override { return store_; }

  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    const std::string name = next_key("split");
    const StoreSplit part = zero::split(self_, name, color, key);
    if (part.rank < 0) return nullptr;
    const StoreRank self{self_.store, part.rank, static_cast<int>(part.members.size()),
                         self_.timeout};
    auto backend = std::make_shared<HostBackend>(
        memory_, "", self, fmt::format("{}/{}", name, part.members.front()), context());
    backend->set_members(part.members);
    return backend;
  }

  /// On a CPU device, memory that peers read in place.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    return region_buffer(memory_, {device, count, dtype, memory_class, label});
  }
  /// On CPU devices, a file that all ranks map.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    if (size() > 1) {
      auto made = shared_buffer(*host_transport_, all_gather_texts(),
                                {device, count, dtype, memory_class, label});
      if (made) return {std::move(*made), true};
    }
    return {allocate(device, count, dtype, memory_class, label), false};
  }

 private:
  HostTransport::AllGatherTexts all_gather_texts() {
    return [this](const std::string& mine) {
      return zero::all_gather_texts(self_, next_key("line"), mine);
    };
  }
  std::string next_key(std::string_view purpose) {
    return fmt::format("{}/{}/{}", name_, purpose, exchanges_++);
  }

  StoreRank self_;
  std::string name_;
  PrefixStore store_;
  std::shared_ptr<Memory> memory_;
  int exchanges_ = 0;  // in the store
  std::shared_ptr<HostTransport> host_transport_;
};

}  // namespace

std::unique_ptr<Communicator> world(const StoreRank& self) {
  if (self.size == 1) return local::single();
  std::string reason;
  std::shared_ptr<Memory> memory;
  try {
    memory = std::make_shared<Memory>(self.size);
  } catch (const std::exception& error) {  // any error: the peers wait for it
    reason = error.what();
  }
  return std::make_unique<Communicator>(
      std::make_shared<HostBackend>(std::move(memory), reason, self, "host"));
}

}  // namespace zero::host
