// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "collectives/copy.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {
namespace {

// Beyond those of operations.
constexpr int kComparisonTag = 100;
constexpr int kFailureTag = 101;

// Name, details, counts; texts end with a zero.
std::string pack(const Call& call) {
  std::string bytes;
  for (const std::string& text : {call.name, call.details}) {
    bytes += text.c_str();
    bytes += '\0';
  }
  bytes.append(reinterpret_cast<const char*>(call.counts.data()),
               call.counts.size() * sizeof(std::int64_t));
  return bytes;
}

Call unpack(std::string_view bytes) {
  Call call;
  for (std::string* text : {&call.name, &call.details}) {
    *text = bytes.substr(0, bytes.find('\0'));
    bytes.remove_prefix(text->size() + 1);
  }
  call.counts.resize(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(call.counts.data(), bytes.data(), bytes.size());
  return call;
}

/// In which a rank that waits answers. All rounds of waiting for answers end before a wait that
/// stands behind this one.
constexpr std::chrono::milliseconds kAnswers{500};
constexpr int kRounds = 4;

}  // namespace

CallComparison::CallComparison(MPI_Comm group, int rank, const std::vector<int>& leaders,
                               std::vector<int> names)
    : group_(group), rank_(rank), names_(std::move(names)) {
  const auto at = std::ranges::find(leaders, rank);
  if (at == leaders.end() || leaders.size() == 1) return;
  previous_ = at == leaders.begin() ? leaders.back() : *(at - 1);
  next_ = at + 1 == leaders.end() ? leaders.front() : *(at + 1);
}

// Only an error leaves a message behind; MPI may still read it.
CallComparison::~CallComparison() {
  if (request_ == MPI_REQUEST_NULL) return;
  MPI_Request_free(&request_);
  static_cast<void>(new std::string(std::move(mine_)));
}

void CallComparison::start(const Call& call) {
  if (next_ < 0) return;
  mine_ = pack(call);
  check_mpi(MPI_Isend(mine_.data(), narrow<int>(mine_.size()), MPI_CHAR, next_, kComparisonTag,
                      group_, &request_));
  started_ = true;
}

void CallComparison::finish(const WhileWaiting& while_waiting) {
  if (!started_) return;
  started_ = false;
  const auto name_of = [this](int rank) { return names_[static_cast<std::size_t>(rank)]; };
  std::optional<std::string> theirs;
  int sent = 0;
  const auto done = [&] {
    if (!theirs) theirs = take_message(group_, previous_, kComparisonTag);
    if (sent == 0) check_mpi(MPI_Test(&request_, &sent, MPI_STATUS_IGNORE));
    return theirs && sent != 0;
  };
  wait_until(done, [&] {
    while_waiting([&] { return std::vector<int>{name_of(theirs ? next_ : previous_)}; });
  });
  if (*theirs == mine_) return;
  throw Error(mismatch(unpack(mine_), rank_, unpack(*theirs), previous_, names_).value());
}

std::string_view origin_of(std::string_view what) {
  constexpr std::string_view kPassedOn = "the group has failed: ";
  const std::size_t at = what.rfind(kPassedOn);
  return at == std::string_view::npos ? what : what.substr(at + kPassedOn.size());
}

void Failures::report(std::string_view what) noexcept {
  if (reason_) return;
  try {
    reason_ = origin_of(what);
    tell_peers(group_, kFailureTag, *reason_);
  } catch (const std::exception&) {
    return;  // MPI is broken too, which ends the job
  }
}

const std::optional<std::string>& Failures::received() {
  while (auto words = take_message(group_, MPI_ANY_SOURCE, kFailureTag)) {
    if (!reason_) reason_ = std::move(words);
  }
  return reason_;
}

// All ranks of a group that failed keep its communicators, whether they threw or only heard of it:
// a rank that freed its own would give their identifiers to new ones, and messages that still come
// for the old ones would be taken for those of the new.
Link::~Link() {
  if (!failures_.known()) return;
  group_.abandon();
  if (inquiries_) inquiries_->abandon();
}

void Link::guarded(const CallSignature& signature, const Work& work) {
  operation_ = signature.operation;
  who_ = call_name(names_[static_cast<std::size_t>(rank())], operation_, signature.purpose);
  if (const auto& known = failures_.known()) {
    fail("{}: the group has failed: {}", who_, *known);
  }
  try {
    work();
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    failures_.report(what.starts_with("[rank ") ? std::string(what)
                                                : fmt::format("{}: {}", who_, what));
    throw;
  }
}

void Link::compared(const CallSignature& signature, const Work& work) {
  comparison_->start(host::HostTransport::call_of(signature));
  work();
  finish_comparison();
}

void Link::finish_comparison() const { comparison_->finish(while_waiting()); }

std::unique_ptr<Transfers> Link::transfers() const {
  return std::make_unique<Transfers>(
      Transfers::Envelope{handle(), static_cast<int>(operation_), options_.largest_message}, who_,
      names_);
}

void Link::wait(Transfers& transfers) const {
  finish_comparison();
  transfers.wait(while_waiting());
}

WhileWaiting Link::while_waiting() const {
  using Clock = std::chrono::steady_clock;
  return [this, long_wait = std::optional<LongWait>(), round = 0,
          answered = Clock::time_point()](const Absent& absent) mutable {
    if (const auto& received = failures_.received())
      fail("{}: the group has failed: {}", who_, *received);
    inquiries_->attend(absent);
    if (!long_wait) long_wait.emplace(*context_);
    const LongWait::Due due = long_wait->due();
    if (due == LongWait::Due::nothing || (round > 0 && Clock::now() < answered)) return;
    const std::vector<int> ranks = absent();
    if (ranks.empty()) return;
    if (due == LongWait::Due::warning) return long_wait->warn(waiting_for(ranks));
    if (round == kRounds) blame_all(*long_wait, ranks);
    if (round == 0) inquiries_->ask();
    if (round++ > 0) blame(*long_wait, ranks);
    answered = Clock::now() + kAnswers;
  };
}

std::vector<AbsentRank> Link::described(const std::vector<int>& ranks) const {
  std::vector<AbsentRank> absent;
  for (const int rank : ranks) absent.push_back(inquiries_->processes().absent(rank));
  return absent;
}

Waiting Link::waiting_for(const std::vector<int>& ranks) const {
  return {.who = who_, .step = step_, .absent = described(ranks)};
}

void Link::blame(const LongWait& wait, const std::vector<int>& absent) const {
  const auto ranks = inquiries_->to_blame(absent);
  if (ranks && !ranks->empty()) throw Error(wait.overdue(waiting_for(*ranks)));
}

void Link::blame_all(const LongWait& wait, const std::vector<int>& absent) const {
  throw Error(wait.overdue(waiting_for(absent)) +
              (inquiries_->cut_off() ? "; no rank of another host answers this one: the link "
                                       "between them may be cut"
                                     : ""));
}

/// Ranks that wait for messages are about to blame a rank, and know better.
std::optional<std::vector<AbsentRank>> Link::blamed(const std::vector<int>& absent,
                                                    std::chrono::steady_clock::duration since) {
  if (since.count() == 0) inquiries_->ask();
  if (since < kAnswers) return std::nullopt;
  if (since >= 2 * kRounds * kAnswers) return described(absent);
  const auto ranks = inquiries_->to_blame(absent);
  if (!ranks || ranks->empty()) return std::nullopt;
  return described(*ranks);
}

void Link::join(std::shared_ptr<Inquiries> job) {
  inquiries_ = std::move(job);
  names_ = ranks_in(inquiries_->handle(), handle());
}

std::vector<int> Link::names_of(const std::vector<int>& ranks) const {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(names_[static_cast<std::size_t>(rank)]);
  return names;
}

void Link::send_and_receive(const ViewOfRank& send, const ViewOfRank& receive) {
  const auto transfers = this->transfers();
  // Each rank begins with its neighbour, so that the ranks do not all send to one rank first.
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() + size() - step) % size();
    transfers->receive(receive(from), from);
  }
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    transfers->send(send(to), to);
  }
  wait(*transfers);
}

// Only the two ranks of a pair know their counts, and a receive without a matching send would wait
// without end, so each first tells the other how much it sends and expects.
void Link::compare_counts(const Slices& send, const Slices& receive) {
  std::vector<std::int64_t> mine;
  for (std::size_t peer = 0; peer < send.ranges.size(); ++peer) {
    mine.push_back(send.ranges[peer].count);
    mine.push_back(receive.ranges[peer].count);
  }
  std::vector<std::int64_t> theirs = mine;
  const auto of = [](std::vector<std::int64_t>& counts, int peer) {
    return View::of(std::span(counts)).slice(std::int64_t{2} * peer, 2);
  };
  send_and_receive([&](int to) { return of(mine, to); },
                   [&](int from) { return of(theirs, from); });
  for (std::size_t peer = 0; peer < send.ranges.size(); ++peer) {
    if (static_cast<int>(peer) == rank()) continue;
    ZERO_CHECK(theirs[2 * peer] == mine[2 * peer + 1],
               "{}: rank {} sends {} elements, expected receive slice {}'s {}", who_, names_[peer],
               theirs[2 * peer], peer, mine[2 * peer + 1]);
    ZERO_CHECK(theirs[2 * peer + 1] == mine[2 * peer],
               "{}: rank {} expects {} elements, send slice {} has {}", who_, names_[peer],
               theirs[2 * peer + 1], peer, mine[2 * peer]);
  }
}

void Link::all_to_all(const Slices& send, const Slices& receive) {
  compare_counts(send, receive);
  send_and_receive([&](int peer) { return send.of(peer); },
                   [&](int peer) { return receive.of(peer); });
  copy(send.of(rank()), receive.of(rank()));
}

// One byte between each two ranks, so that a rank knows which others have not come.
void Link::barrier() {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size()));
  const View all(bytes.data(), size(), DType::u8, nullptr);
  send_and_receive([&](int) { return all.slice(rank(), 1); },
                   [&](int peer) { return all.slice(peer, 1); });
}

}  // namespace zero::mpi
