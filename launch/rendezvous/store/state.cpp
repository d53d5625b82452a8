// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/state.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {
namespace {

/// Approximate bytes of a key besides its characters and its value's.
constexpr std::uint64_t kKeyBytes = 128;
/// Bytes of a reply's values at most, unless it has one value; the client asks for the rest.
constexpr std::uint64_t kReplyBytes = std::uint64_t{1} << 20U;

std::uint64_t bytes_of(std::string_view key, std::string_view value) {
  return kKeyBytes + key.size() + value.size();
}

constexpr std::array kLosses{"ended", "unreachable", "reset"};  // by PeerLoss
static_assert(std::size_t(PeerLoss::reset) + 1 == kLosses.size());

std::string lost_text(int rank) {
  return fmt::format("rank {} is gone: its process has ended, or its host cannot be reached", rank);
}

/// A job's name for a message.
std::string described(std::string_view job) {
  if (job.empty()) return "a job without a name";
  return fmt::format("job \"{}\"", printable_line(job));
}

void check_parts(const StoreState::Message& request, std::size_t expected) {
  ZERO_CHECK(request.size() == expected, "a request of {} strings, expected {}", request.size(),
             expected);
}

}  // namespace

StoreState::StoreState(int world, std::string job, std::uint64_t most_bytes)
    : world_(world),
      job_(std::move(job)),
      most_bytes_(most_bytes),
      ranks_(static_cast<std::size_t>(world), Presence::absent) {}

std::variant<StoreState::Message, StoreState::Wait> StoreState::obey(const Message& request,
                                                                     Client& client) {
  const std::string& verb = request.at(0);
  if (verb == "set") {
    check_parts(request, 3);
    if (client.is_rank && !counts(client)) return Message{"refused", "the rank has come again"};
    return set(request[1], request[2]);
  }
  if (verb == "wait" || verb == "get") {
    ZERO_CHECK(request.size() >= 3, "a wait of {} strings, expected how long and for which keys",
               request.size());
    return Wait{.patience = std::chrono::milliseconds(
                    store_wire::number(request[1], 0, store_wire::kLongestWait)),
                .keys = Message(request.begin() + 2, request.end()),
                .wants_values = verb == "get"};
  }
  if (verb == "hello" && request.size() == 2) return hello(client, request[1]);
  check_parts(request, 1);
  if (verb == "hello") return hello(client, "");
  if (verb == "lost?") return losses();
  ZERO_CHECK(verb == "bye", "a request that rank 0 does not know");
  if (counts(client)) mark(client.identity.rank, Presence::left);
  client.is_rank = false;
  return Message{"ok"};
}

std::optional<StoreState::Message> StoreState::answer(Wait& wait, Time time) const {
  while (wait.found < wait.keys.size() && values_.contains(wait.missing())) ++wait.found;
  Message reply;
  if (wait.found == wait.keys.size()) {
    if (!wait.wants_values) return Message{"ok"};
    reply.emplace_back("values");
    std::uint64_t bytes = 0;
    for (const std::string& key : wait.keys) {
      const std::string& value = values_.find(key)->second;
      bytes += bytes_of("", value);
      if (bytes > kReplyBytes && reply.size() > 1) break;
      reply.push_back(value);
    }
    return reply;
  }
  if (losses_.empty() && time == Time::left) return std::nullopt;
  reply = losses_.empty() ? Message{"missing", absent_ranks()}
                          : Message{"lost", lost_text(losses_.front().first)};
  std::ranges::copy_if(wait.keys, std::back_inserter(reply),
                       [&](const std::string& key) { return !values_.contains(key); });
  return reply;
}

void StoreState::gone(Client& client, PeerLoss loss) {
  const bool is_lost = counts(client);
  client.is_rank = false;
  if (!is_lost) return;
  mark(client.identity.rank, Presence::lost);
  losses_.emplace_back(client.identity.rank, loss);
}

StoreState::Message StoreState::losses() const {
  if (losses_.empty()) return {"ok"};
  Message reply{"lost", lost_text(losses_.front().first)};
  for (const auto& [rank, loss] : losses_) {
    reply.push_back(std::to_string(rank));
    reply.emplace_back(kLosses.at(static_cast<std::size_t>(loss)));
  }
  return reply;
}

bool StoreState::counts(const Client& client) const {
  if (!client.is_rank) return false;
  const auto place = places_.find(client.identity.rank);
  return place == places_.end() || place->second.turns == client.turn;
}

bool StoreState::proves(int rank, const std::string& proof) const {
  const auto place = places_.find(rank);
  return place != places_.end() && place->second.proof == proof;
}

void StoreState::wait_for_goodbyes(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience,
                    [&] { return std::ranges::count(ranks_, Presence::there) == 0; });
}

StoreState::Message StoreState::hello(Client& client, const std::string& proof) {
  ZERO_CHECK(proof.size() <= store_wire::kMostProofBytes,
             "a proof of {} bytes, expected at most {}", proof.size(), store_wire::kMostProofBytes);
  const auto& [rank, world, job] = client.identity;
  if (job != job_) {
    return {"refused",
            fmt::format("this port belongs to {}, rank {} is of {}; give each job a MASTER_PORT of "
                        "its own, or all ranks of one job the same TORCHELASTIC_RUN_ID",
                        described(job_), rank, described(job))};
  }
  if (world != world_) {
    return {"refused", fmt::format("it was started as one of {} ranks, rank 0 as one of {}; give "
                                   "all ranks the same number of ranks",
                                   world, world_)};
  }
  const Presence presence = ranks_[static_cast<std::size_t>(rank)];
  if (client.is_rank || !(presence == Presence::absent || proves(rank, proof))) {
    return {"refused", fmt::format("rank {} is there already; give each process a rank of its "
                                   "own, and each job a port of its own",
                                   rank)};
  }
  // It has not heard the answer to its goodbye, which stands.
  if (presence == Presence::left) return {"ok"};
  client.is_rank = true;
  if (!proof.empty()) {
    Place& place = places_[rank];
    place.proof = proof;
    client.turn = ++place.turns;
  }
  std::erase_if(losses_, [&](const auto& loss) { return loss.first == rank; });
  mark(rank, Presence::there);
  return {"ok"};
}

StoreState::Message StoreState::set(const std::string& key, const std::string& value) {
  const auto at = values_.find(key);
  const std::uint64_t old = at == values_.end() ? 0 : bytes_of(key, at->second);
  const std::uint64_t total = bytes_ - old + bytes_of(key, value);
  if (total > most_bytes_) {
    return {"refused", fmt::format("all keys and values would take {} bytes, and rank 0 keeps at "
                                   "most {}; it is for agreement, not for data",
                                   total, most_bytes_)};
  }
  values_.insert_or_assign(key, value);
  bytes_ = total;
  return {"ok"};
}

void StoreState::mark(int rank, Presence presence) {
  const std::scoped_lock lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)] = presence;
  changed_.notify_all();
}

// "rank 3 has not come", "ranks 1, 2, 3 and 5 others have not come"; empty if all have.
std::string StoreState::absent_ranks() const {
  constexpr int kNamed = 8;
  const std::scoped_lock lock(mutex_);
  std::string names;
  std::int64_t absent = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank] != Presence::absent || ++absent > kNamed) continue;
    names += (names.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (absent == 0) return "";
  if (absent > kNamed) names += fmt::format(" and {} others", absent - kNamed);
  return absent == 1 ? fmt::format("rank {} has not come", names)
                     : fmt::format("ranks {} have not come", names);
}

}  // namespace zero
