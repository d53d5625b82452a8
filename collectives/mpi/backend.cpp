// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/message_text.h"
#include "collectives/backends.h"
#include "collectives/collective_backend.h"
#include "collectives/host/transport.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/connection.h"
#include "collectives/mpi/runtime.h"

namespace zero::mpi {
namespace {

/// The Store of a group of processes. Each rank keeps every value, so only waits receive messages,
/// and no call needs another rank's participation.
class MpiStore final : public Store {
 public:
  MpiStore(std::shared_ptr<Runtime> runtime, Comm group)
      : runtime_(std::move(runtime)), mailbox_(std::make_unique<Mailbox>(std::move(group))) {}
  ~MpiStore() override {
    mailbox_->say_goodbye();
    runtime_->retire(std::move(mailbox_));
  }

  void set(std::string_view key, std::string_view value) override { mailbox_->set(key, value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    const std::string name(key);
    wait({name}, timeout);
    return mailbox_->at(name);
  }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    Backoff backoff;
    for (;;) {
      const std::vector<std::string> absent = mailbox_->missing(keys);
      if (absent.empty()) return;
      ZERO_CHECK(std::chrono::steady_clock::now() < deadline,
                 "store: nobody set {} within {}; check that every rank reached this point",
                 fmt::join(absent, ", "), timeout_text(timeout));
      backoff.pause();
    }
  }
  std::optional<std::string> lost() override { return std::nullopt; }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<Mailbox> mailbox_;
};

/// One process of a group of MPI processes. Connection chooses the transport.
class MpiBackend final : public BlockingBackend {
 public:
  /// Collective over the group; takes ownership of it.
  MpiBackend(std::shared_ptr<Runtime> runtime, Connection::Part part, const Options& options,
             std::shared_ptr<CallContext> context = std::make_shared<CallContext>())
      : BlockingBackend(std::move(context)),
        runtime_(std::move(runtime)),
        connection_(
            std::make_shared<Connection>(runtime_, std::move(part), options, this->context())),
        store_(std::make_unique<MpiStore>(runtime_, Comm::copy_of(connection_->link().handle()))) {
    set_transport({connection_, &connection_->transport()});
  }

  int rank() const override { return connection_->link().rank(); }
  int size() const override { return connection_->link().size(); }
  int local_rank() const override { return connection_->local_rank(); }
  int local_size() const override { return connection_->local_size(); }
  BackendKind kind() const override { return BackendKind::mpi; }
  std::string_view description() const override { return connection_->description(); }
  Store& store() override { return *store_; }

  /// MPI's split waits without a limit; behind this barrier it only waits for ranks that have
  /// arrived.
  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    connection_->transport().barrier("split");
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(connection_->link().handle(), color < 0 ? MPI_UNDEFINED : color, key,
                             &part));
    if (part == MPI_COMM_NULL) return nullptr;
    Comm group(part);
    Options options = connection_->link().options();
    std::vector<int> members = ranks_in(connection_->link().handle(), part);
    if (!options.hosts.empty()) {
      const std::vector<int> hosts = std::exchange(options.hosts, {});
      for (const int member : members) {
        options.hosts.push_back(hosts[static_cast<std::size_t>(member)]);
      }
    }
    auto backend = std::make_shared<MpiBackend>(
        runtime_, Connection::Part{std::move(group), connection_->link().inquiries()}, options,
        context());
    backend->set_members(std::move(members));
    return backend;
  }

  /// On a CPU device, memory that peers of this host read in place.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override {
    return host::region_buffer(connection_->memory(), {device, count, dtype, memory_class, label});
  }
  /// On CPU devices of one host, a file that all ranks map.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    if (connection_->shared() != nullptr && size() > 1) {
      connection_->transport().barrier("allocate_shared");
      auto made = host::shared_buffer(
          *connection_->shared(),
          [this](const std::string& mine) { return connection_->all_gather_texts(mine); },
          {device, count, dtype, memory_class, label});
      if (made) return {std::move(*made), true};
    }
    return {allocate(device, count, dtype, memory_class, label), false};
  }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Connection> connection_;  // shared with queued work
  std::unique_ptr<MpiStore> store_;
};

}  // namespace

std::unique_ptr<Communicator> world(int* argc, char*** argv, const Options& options) {
  ZERO_CHECK(options.largest_message >= 1 && options.largest_message < (std::int64_t{1} << 30),
             "largest message of {} bytes; expected 1 to {}", options.largest_message,
             (std::int64_t{1} << 30) - 1);
  if (!Runtime::initialised() && !Runtime::launched()) return local::single();
  auto runtime = Runtime::start(argc, argv);
  Comm group = Comm::copy_of(MPI_COMM_WORLD);
  ZERO_CHECK(options.hosts.empty() || static_cast<int>(options.hosts.size()) == group.size(),
             "imitated hosts of {} ranks; expected one for each of the {} ranks of the world",
             options.hosts.size(), group.size());
  return std::make_unique<Communicator>(
      std::make_shared<MpiBackend>(runtime, Connection::Part{std::move(group)}, options));
}

std::unique_ptr<Communicator> world(int* argc, char*** argv) { return world(argc, argv, {}); }

bool available() { return true; }

std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // needs no initialisation
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

void abort(int exit_code) noexcept {
  std::fflush(nullptr);
  if (Runtime::initialised() && !finalised()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace zero::mpi
