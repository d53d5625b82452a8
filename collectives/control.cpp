// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/control.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "collectives/backends.h"
#include "collectives/store_split.h"
#include "device/cpu/primitives.h"

namespace zero::control {
namespace {

std::string_view bytes_of(View view) {
  return {static_cast<const char*>(view.data()), static_cast<std::size_t>(view.bytes())};
}

void put(const std::string& who, const std::string& bytes, View to) {
  ZERO_CHECK(std::ssize(bytes) == to.bytes(),
             "{}: a rank gave {} bytes, expected {}; all ranks must make the same call", who,
             bytes.size(), to.bytes());
  if (!to.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

}  // namespace

ControlCommunicator::ControlCommunicator(const StoreSeat& seat, const std::string& name,
                                         std::vector<std::string> hosts,
                                         std::shared_ptr<CallContext> context)
    : Communicator(std::move(context)),
      seat_(seat),
      name_(name),
      hosts_(std::move(hosts)),
      store_(seat.store, name + "/user") {}

int ControlCommunicator::local_rank() const {
  const auto self = hosts_.begin() + rank();
  return static_cast<int>(std::count(hosts_.begin(), self, *self));
}

int ControlCommunicator::local_size() const {
  return static_cast<int>(std::ranges::count(hosts_, hosts_[static_cast<std::size_t>(rank())]));
}

ControlCommunicator::Job ControlCommunicator::job(Operation operation, const Tag& tag) {
  return {.seat = seat_,
          .who = fmt::format("[rank {}] {}({})", rank(), name_of(operation), tag.unit),
          .step = context()->step(),
          .key = fmt::format("{}/{}/{}", name_, name_of(operation), jobs_++),
          .failed = name_ + "/failed",
          .hosts = hosts_,
          .context = context()};
}

std::vector<std::string> ControlCommunicator::Job::exchange(std::string_view mine) const {
  seat.store.set(key_of(seat.rank), mine);
  std::vector<int> all(static_cast<std::size_t>(seat.size));
  std::iota(all.begin(), all.end(), 0);
  wait(all);
  std::vector<std::string> values;
  for (const int rank : all) values.push_back(seat.store.get(key_of(rank), seat.timeout));
  return values;
}

bool ControlCommunicator::Job::came(int rank) const {
  try {
    seat.store.wait({key_of(rank)}, std::chrono::milliseconds(0));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The store itself knows of no wait that goes on, so this asks it again and again.
void ControlCommunicator::Job::wait(const std::vector<int>& ranks) const {
  constexpr std::chrono::milliseconds kBetweenLooks{1000};
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(key_of(rank));
  LongWait wait(*context);
  for (;;) {
    try {
      return seat.store.wait(keys, wait.until_due(kBetweenLooks));
    } catch (const Error&) {
      if (seat.store.lost()) throw;
    }
    look(wait, ranks);
  }
}

void ControlCommunicator::Job::look(LongWait& wait, const std::vector<int>& ranks) const {
  std::optional<std::string> reason;
  try {
    reason = seat.store.get(failed, std::chrono::milliseconds(0));
  } catch (const Error&) {
    reason = std::nullopt;  // nobody has failed
  }
  if (reason) fail("{}: the group has failed: {}", who, *reason);
  try {
    wait.look([&] {
      Waiting waiting{.who = who, .step = step};
      for (const int rank : ranks) {
        if (came(rank)) continue;
        const std::string& host = hosts[static_cast<std::size_t>(rank)];
        waiting.absent.push_back({rank, fmt::format("on host {}: unknown", host)});
      }
      return waiting;
    });
  } catch (const Error& error) {
    seat.store.set(failed, error.what());
    throw;
  }
}

std::unique_ptr<Communicator> ControlCommunicator::split(int color, int key) {
  const std::string name = fmt::format("{}/split/{}", name_, jobs_++);
  const StoreSplit part = zero::split(seat_, name, color, key);
  if (part.rank < 0) return nullptr;
  std::vector<std::string> hosts;
  for (const int member : part.members) hosts.push_back(hosts_[static_cast<std::size_t>(member)]);
  StoreSeat seat = seat_;
  seat.rank = part.rank;
  seat.size = static_cast<int>(part.members.size());
  return std::make_unique<ControlCommunicator>(
      seat, fmt::format("{}/{}", name, part.members.front()), std::move(hosts), context());
}

void ControlCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream,
                                        const Tag& tag) {
  stream.submit("all_gather", [job = job(Operation::all_gather, tag), mine, full] {
    const auto texts = job.exchange(bytes_of(mine));
    for (int peer = 0; peer < full.world(); ++peer) {
      put(job.who, texts[static_cast<std::size_t>(peer)], full.of(peer));
    }
  });
}

void ControlCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  stream.submit("all_reduce", [job = job(Operation::all_reduce, tag), values, op] {
    auto texts = job.exchange(bytes_of(values));
    std::vector<std::vector<std::byte>> memory;
    std::vector<View> inputs;
    for (const std::string& text : texts) {
      auto& bytes = memory.emplace_back(std::max<std::size_t>(text.size(), 1));
      const View input(bytes.data(), values.count(), values.dtype(), nullptr);
      put(job.who, text, input);
      inputs.push_back(input);
    }
    cpu::combine(inputs, op, values);
  });
}

void ControlCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  stream.submit("broadcast", [job = job(Operation::broadcast, tag), values, root] {
    if (job.seat.rank == root) return job.seat.store.set(job.key_of(root), bytes_of(values));
    job.wait({root});
    put(job.who, job.seat.store.get(job.key_of(root), job.seat.timeout), values);
  });
}

void ControlCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  stream.submit("barrier",
                [job = job(Operation::barrier, tag)] { static_cast<void>(job.exchange("")); });
}

void ControlCommunicator::refuse(const Job& job) const {
  fail(
      "{}: the ranks are on several hosts and have only a store in common; to compute on the CPU "
      "there, start them with mpirun",
      job.who);
}

void ControlCommunicator::do_reduce_scatter(const Slices& /*full*/, const ReduceEpilogue&, View,
                                            Stream&, const Tag& tag) {
  refuse(job(Operation::reduce_scatter, tag));
}

std::int64_t ControlCommunicator::do_reduce_scatter_workspace(const Slices& /*full*/) const {
  return 0;
}

void ControlCommunicator::do_all_to_all(const Slices& /*send*/, const Slices& /*receive*/, Stream&,
                                        const Tag& tag) {
  refuse(job(Operation::all_to_all, tag));
}

std::unique_ptr<Communicator> world(const StoreSeat& seat, std::vector<std::string> hosts) {
  return std::make_unique<ControlCommunicator>(seat, "control", std::move(hosts));
}

}  // namespace zero::control
