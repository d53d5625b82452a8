// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/runtime.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "collectives/host/process.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {
namespace {

constexpr int kMailTag = 0;  // the group carries nothing else

// A message: the key's length, the key, the value. An empty one is a goodbye.
std::vector<char> pack(std::string_view key, std::string_view value) {
  const std::uint64_t length = key.size();
  std::vector<char> bytes(sizeof(length) + key.size() + value.size());
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::copy(key.begin(), key.end(), bytes.begin() + sizeof(length));
  std::copy(value.begin(), value.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(sizeof(length) + key.size()));
  return bytes;
}

// If each rank has a container of its own, Open MPI 4 finds at its start that ranks cannot read
// each other's memory (CMA), and falls back; after that, messages hang for good once many below the
// eager limit go both ways. With single copy disabled beforehand, Open MPI copies through shared
// memory and does not hang. Which ranks share a container is not known at this point, so the
// setting holds for all of them. Open MPI 5 has no such setting and needs none: it compares the
// namespaces and does without. The user's own value, by the variable or by mpirun --mca, stays.
void do_without_single_copy() {
  if (host::in_first_user_namespace()) return;
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

}  // namespace

Mailbox::~Mailbox() {
  // MPI may still read messages in flight, so their memory and the group's handle are leaked.
  if (abandoned_ || !sending_.empty()) {
    static_cast<void>(new std::list<Sending>(std::move(sending_)));
    static_cast<void>(new Comm(std::move(group_)));
  }
}

void Mailbox::set(std::string_view key, std::string_view value) {
  const std::scoped_lock lock(mutex_);
  send_to_peers(pack(key, value));
  progress();
  values_.insert_or_assign(std::string(key), std::string(value));
}

std::vector<std::string> Mailbox::missing(const std::vector<std::string>& keys) {
  const std::scoped_lock lock(mutex_);
  progress();
  std::vector<std::string> absent;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) absent.push_back(key);
  }
  return absent;
}

std::string Mailbox::at(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  return values_.at(key);
}

void Mailbox::say_goodbye() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    send_to_peers({});
  } catch (const std::exception&) {
    abandoned_ = true;  // a broken job: nothing more can be said
  }
}

bool Mailbox::closed() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    progress();
    return abandoned_ || (sending_.empty() && goodbyes_ == group_.size() - 1);
  } catch (const std::exception&) {
    abandoned_ = true;
    return true;
  }
}

void Mailbox::send_to_peers(std::vector<char> bytes) {
  if (group_.size() == 1) return;
  Sending& message = sending_.emplace_back();
  message.bytes = std::move(bytes);
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(message.bytes.data(), narrow<int>(message.bytes.size()), MPI_CHAR, peer,
                        kMailTag, group_.get(), &request));
    message.requests.push_back(request);
  }
}

void Mailbox::progress() {
  while (const auto bytes = take_message(group_.get(), MPI_ANY_SOURCE, kMailTag)) {
    if (bytes->empty()) {
      ++goodbyes_;
      continue;
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes->data(), sizeof(length));
    values_.insert_or_assign(bytes->substr(sizeof(length), length),
                             bytes->substr(sizeof(length) + length));
  }
  std::erase_if(sending_, [](Sending& message) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(message.requests.size()), message.requests.data(), &done,
                          MPI_STATUSES_IGNORE));
    return done != 0;
  });
}

bool Runtime::initialised() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

bool Runtime::launched() {
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                  "MV2_COMM_WORLD_SIZE"};
  return std::ranges::any_of(kVariables, [](const char* v) { return std::getenv(v) != nullptr; });
}

std::shared_ptr<Runtime> Runtime::start(int* argc, char*** argv) {
  // One runtime per process, like MPI; this pointer does not keep it alive.
  static std::mutex mutex;
  static std::weak_ptr<Runtime> current;
  const std::scoped_lock lock(mutex);
  auto runtime = current.lock();
  if (!runtime) {
    runtime = std::shared_ptr<Runtime>(new Runtime(argc, argv));
    current = runtime;
  }
  return runtime;
}

Runtime::Runtime(int* argc, char*** argv) : exceptions_(std::uncaught_exceptions()) {
  ZERO_CHECK(!finalised(),
             "MPI has been finalised and cannot start again; keep one communicator of "
             "mpi::world() until the end");
  int provided = MPI_THREAD_SINGLE;
  if (initialised()) {
    check_mpi(MPI_Query_thread(&provided));
  } else {
    do_without_single_copy();
    check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
    owns_mpi_ = true;
  }
  check_thread_level(provided);
}

// A rank that unwinds leaves MPI open: its peers may be in a collective that never ends, and
// finalisation would wait for them forever. The rank's main() reports the error and calls
// mpi::abort.
Runtime::~Runtime() {
  if (finalised() || std::uncaught_exceptions() > exceptions_) {
    for (auto& mailbox : retired_) mailbox->abandon();
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  Backoff backoff;
  const auto done = [](const auto& mailbox) { return mailbox->closed(); };
  while (!std::ranges::all_of(retired_, done) && std::chrono::steady_clock::now() < deadline) {
    backoff.pause();
  }
  retired_.clear();
  if (owns_mpi_) MPI_Finalize();
}

std::shared_ptr<host::Memory> Runtime::memory(int ranks, std::string& reason) {
  const std::scoped_lock lock(mutex_);
  try {
    if (!memory_) memory_ = std::make_shared<host::Memory>(ranks);
  } catch (const std::exception& error) {  // any error: the peers wait for it
    reason = error.what();
  }
  return memory_;
}

void Runtime::retire(std::unique_ptr<Mailbox> mailbox) {
  const std::scoped_lock lock(mutex_);
  retired_.push_back(std::move(mailbox));
}

}  // namespace zero::mpi
