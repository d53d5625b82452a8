// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/control.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "collectives/backends.h"
#include "device/cpu/primitives.h"

namespace zero::control {
namespace {

[[noreturn]] void refuse(int rank, Operation operation, std::string_view unit) {
  fail(
      "{}: the ranks are on several hosts and have only a store in common; to compute on the CPU "
      "there, start them with mpirun",
      call_name(rank, operation, unit));
}

std::string_view bytes_of(View view) {
  return {static_cast<const char*>(view.data()), static_cast<std::size_t>(view.bytes())};
}

}  // namespace

void ControlTransport::start(Operation operation, std::string_view unit) {
  who_ = call_name(group_.seat.rank, operation, unit);
  key_ = fmt::format("{}/{}/{}", group_.name, name_of(operation), calls_++);
}

std::vector<std::string> ControlTransport::exchange(std::string_view mine) {
  const StoreSeat& seat = group_.seat;
  seat.store.set(key_of(seat.rank), mine);
  std::vector<int> all(static_cast<std::size_t>(seat.size));
  std::iota(all.begin(), all.end(), 0);
  wait(all);
  std::vector<std::string> values;
  for (const int rank : all) values.push_back(seat.store.get(key_of(rank), seat.timeout));
  return values;
}

// The store itself knows of no wait that goes on, so this asks again and again.
void ControlTransport::wait(const std::vector<int>& ranks) {
  constexpr std::chrono::milliseconds kBetweenLooks{1000};
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(key_of(rank));
  LongWait wait(*context_);
  for (;;) {
    try {
      return group_.seat.store.wait(keys, wait.until_due(kBetweenLooks));
    } catch (const Error&) {
      if (group_.seat.store.lost()) throw;
    }
    look(wait, ranks);
  }
}

void ControlTransport::look(LongWait& wait, const std::vector<int>& ranks) {
  const std::string failed = group_.name + "/failed";
  if (const auto reason = group_.seat.store.find(failed))
    fail("{}: the group has failed: {}", who_, *reason);
  try {
    wait.look([&] {
      Waiting waiting{.who = who_, .step = step_};
      for (const int rank : ranks) {
        if (group_.seat.store.find(key_of(rank))) continue;
        const std::string& host = group_.hosts[static_cast<std::size_t>(rank)];
        waiting.absent.push_back({rank, fmt::format("on host {}: unknown", host)});
      }
      return waiting;
    });
  } catch (const Error& error) {
    group_.seat.store.set(failed, error.what());
    throw;
  }
}

void ControlTransport::put(const std::string& bytes, View to) const {
  ZERO_CHECK(std::ssize(bytes) == to.bytes(),
             "{}: a rank gave {} bytes, expected {}; all ranks must make the same call", who_,
             bytes.size(), to.bytes());
  if (!to.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

void ControlTransport::all_gather(View mine, const Slices& full, std::string_view unit) {
  start(Operation::all_gather, unit);
  const auto texts = exchange(bytes_of(mine));
  for (int peer = 0; peer < full.world(); ++peer) {
    put(texts[static_cast<std::size_t>(peer)], full.of(peer));
  }
}

void ControlTransport::all_reduce(View values, ReduceOp op, std::string_view unit) {
  start(Operation::all_reduce, unit);
  std::vector<std::vector<std::byte>> memory;
  std::vector<View> inputs;
  for (const std::string& text : exchange(bytes_of(values))) {
    auto& bytes = memory.emplace_back(std::max<std::size_t>(text.size(), 1));
    const View input(bytes.data(), values.count(), values.dtype(), nullptr);
    put(text, input);
    inputs.push_back(input);
  }
  cpu::combine(inputs, op, values);
}

void ControlTransport::broadcast(View values, int root, std::string_view unit) {
  start(Operation::broadcast, unit);
  Store& store = group_.seat.store;
  if (group_.seat.rank == root) return store.set(key_of(root), bytes_of(values));
  wait({root});
  put(store.get(key_of(root), group_.seat.timeout), values);
}

void ControlTransport::barrier(std::string_view unit) {
  start(Operation::barrier, unit);
  static_cast<void>(exchange(""));
}

void ControlTransport::reduce_scatter(const Slices& /*full*/, const ReduceEpilogue&, View,
                                      std::string_view unit) {
  refuse(group_.seat.rank, Operation::reduce_scatter, unit);
}

void ControlTransport::all_to_all(const Slices& /*send*/, const Slices& /*receive*/,
                                  std::string_view unit) {
  refuse(group_.seat.rank, Operation::all_to_all, unit);
}

ControlBackend::ControlBackend(Members group, std::shared_ptr<CallContext> context)
    : BlockingBackend(std::move(context)),
      group_(std::move(group)),
      store_(group_.seat.store, group_.name + "/user") {
  set_transport(std::make_shared<ControlTransport>(group_, this->context()));
}

void ControlBackend::reduce_scatter(const Slices& /*full*/, const ReduceEpilogue&, View, Stream&,
                                    const Tag& tag) {
  refuse(rank(), Operation::reduce_scatter, tag.unit);
}

void ControlBackend::all_to_all(const Slices& /*send*/, const Slices& /*receive*/, Stream&,
                                const Tag& tag) {
  refuse(rank(), Operation::all_to_all, tag.unit);
}

int ControlBackend::local_rank() const {
  const auto self = group_.hosts.begin() + rank();
  return static_cast<int>(std::count(group_.hosts.begin(), self, *self));
}

int ControlBackend::local_size() const {
  const std::string& host = group_.hosts[static_cast<std::size_t>(rank())];
  return static_cast<int>(std::ranges::count(group_.hosts, host));
}

std::shared_ptr<CollectiveBackend> ControlBackend::split(int color, int key) {
  const std::string name = fmt::format("{}/split/{}", group_.name, splits_++);
  const StoreSplit part = zero::split(group_.seat, name, color, key);
  if (part.rank < 0) return nullptr;
  Members members{
      .seat = group_.seat, .name = fmt::format("{}/{}", name, part.members.front()), .hosts = {}};
  members.seat.rank = part.rank;
  members.seat.size = static_cast<int>(part.members.size());
  for (const int member : part.members) {
    members.hosts.push_back(group_.hosts[static_cast<std::size_t>(member)]);
  }
  return std::make_shared<ControlBackend>(std::move(members), context());
}

std::unique_ptr<Communicator> world(const StoreSeat& seat, std::vector<std::string> hosts) {
  return std::make_unique<Communicator>(
      std::make_shared<ControlBackend>(Members{seat, "control", std::move(hosts)}));
}

}  // namespace zero::control
