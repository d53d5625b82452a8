// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/tcp_store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/rendezvous/store/connection.h"
#include "launch/rendezvous/store/server.h"

namespace zero {
namespace {

using std::chrono::milliseconds;
using Clock = StoreConnection::Clock;
using Message = StoreConnection::Message;

/// Time allowed for an answer beyond the requested timeout.
constexpr milliseconds kAnswer{10'000};
constexpr milliseconds kFarewell{5'000};

/// A key for a message; of a long one, the beginning.
std::string shown(std::string_view key) {
  constexpr std::size_t kShown = 200;
  if (key.size() <= kShown) return std::string(key);
  return fmt::format("{}... ({} bytes)", key.substr(0, kShown), key.size());
}

/// "a, b"; of many, only the first.
std::string listed(Message::const_iterator begin, Message::const_iterator end) {
  constexpr std::ptrdiff_t kNamed = 8;
  const std::ptrdiff_t more = (end - begin) - kNamed;
  Message names(begin, more <= 1 ? end : begin + kNamed);
  for (std::string& name : names) name = shown(name);
  const std::string others = more <= 1 ? "" : fmt::format(" and {} others", more);
  return fmt::format("{}{}", fmt::join(names, ", "), others);
}

/// "get(a)", "set(a)", "wait(a, b)", "hello".
std::string described(const Message& request) {
  const std::string& verb = request.at(0);
  if (verb == "set") return fmt::format("set({})", shown(request.at(1)));
  if (verb != "get" && verb != "wait") return verb;
  return fmt::format("{}({})", verb, listed(request.begin() + 2, request.end()));
}

/// The timeout if a store can wait that long, else the nearest that it can.
milliseconds patience(milliseconds timeout) {
  return std::clamp(timeout, milliseconds(0), milliseconds(store_wire::kLongestWait));
}

}  // namespace

struct TcpStore::State {
  Options options;
  int exceptions = std::uncaught_exceptions();
  std::unique_ptr<StoreServer> server{};     // rank 0's
  std::unique_ptr<StoreConnection> first{};  // the rank is lost if it ends
  std::mutex mutex{};
  std::vector<std::unique_ptr<StoreConnection>> idle{};  // a thread takes one for each request

  std::string name() const {
    return fmt::format("[rank {}] rendezvous at {}:{}", options.rank, options.host, options.port);
  }

  void check_place() const {
    // If all ranks are on this host the port is enough; the address may be that of a cluster
    // service.
    if (options.secret || options.spread == Spread::one_host) return;
    const auto why = why_elsewhere(options.host);
    const auto unknown = why ? why_unknown(options.host) : std::nullopt;
    ZERO_CHECK(!unknown, "[rank {}] {}", options.rank, *unknown);
    ZERO_CHECK(!why, "{}: {}, and this job has no secret; ranks on several hosts need one: {}",
               name(), *why, kMakeJobSecret);
  }

  /// Whether a refused connection means that rank 0 is not there yet, or gone.
  enum class Silence { not_there_yet, gone };

  void report(const std::string& text) const {
    if (options.report) options.report(text);
  }

  /// Retries until rank 0 answers. A handshake, too, is retried: it may fail because strangers
  /// crowd the server. Reports once that rank 0 is not there yet.
  std::unique_ptr<StoreConnection> connect(Clock::time_point deadline, Silence silence) const {
    constexpr milliseconds kPause{100};
    auto next_report =
        silence == Silence::gone ? Clock::time_point::max() : Clock::now() + options.silence;
    for (;;) {
      try {
        return std::make_unique<StoreConnection>(options,
                                                 std::min(deadline, Clock::now() + kAnswer));
      } catch (const boost::system::system_error& error) {
        const bool gone =
            silence == Silence::gone && error.code() == boost::system::errc::connection_refused;
        if (gone || Clock::now() + kPause >= deadline) throw;
        if (Clock::now() >= next_report) {
          next_report = Clock::time_point::max();
          report("still waiting: " + no_answer(options.silence, error));
        }
        std::this_thread::sleep_for(kPause);
      } catch (const Error& error) {
        fail("{}: {}", name(), error.what());
      }
    }
  }

  std::unique_ptr<StoreConnection> connect_first(Clock::time_point deadline) const {
    try {
      return connect(deadline, Silence::not_there_yet);
    } catch (const boost::system::system_error& error) {
      throw Error(no_answer(options.timeout, error));
    }
  }

  std::string no_answer(milliseconds time, const boost::system::system_error& error) const {
    return fmt::format(
        "{}: no answer from rank 0 within {}: {}; check that rank 0 runs, and that MASTER_ADDR "
        "and MASTER_PORT are its host's{}{}",
        name(), timeout_text(time), error.code().message(), reason_for_silence(), options.hint);
  }

  std::string reason_for_silence() const {
    const bool by_name = options.spread != Spread::one_host;
    if (const auto unknown = by_name ? why_unknown(options.host) : std::nullopt) {
      return "; " + *unknown;
    }
    if (options.secret && by_name) {
      return "; a rank 0 that was given no secret listens on its own host alone";
    }
    const auto why = why_elsewhere(options.host);
    if (!why) return "";
    return fmt::format(
        "; {}, though all ranks are said to be on one host: if they are not, correct "
        "LOCAL_WORLD_SIZE or SLURM_NNODES",
        *why);
  }

  std::unique_ptr<StoreConnection> take(const Message& request) {
    {
      const std::scoped_lock lock(mutex);
      if (!idle.empty()) {
        auto connection = std::move(idle.back());
        idle.pop_back();
        return connection;
      }
    }
    try {
      return connect(Clock::now() + kAnswer, Silence::gone);
    } catch (const boost::system::system_error& error) {
      fail("{}: {}: rank 0, where the ranks meet, is gone: {}", name(), described(request),
           error.code().message());
    }
  }

  Message talk(StoreConnection& connection, const Message& request,
               Clock::time_point deadline) const {
    try {
      return connection.ask(request, deadline);
    } catch (const boost::system::system_error& error) {
      fail("{}: {}: rank 0, where the ranks meet, is gone: {}", name(), described(request),
           error.code().message());
    } catch (const Error& error) {
      fail("{}: {}: {}", name(), described(request), error.what());
    }
  }

  Message ask(const Message& request, milliseconds timeout) {
    auto connection = take(request);
    Message reply = talk(*connection, request, Clock::now() + timeout + kAnswer);
    const std::scoped_lock lock(mutex);
    idle.push_back(std::move(connection));
    return reply;
  }

  /// The answer to `verb`, which waits for the keys. Reports once which keys have not come.
  Message ask_for(const std::string& verb, std::span<const std::string> keys,
                  milliseconds timeout) {
    const milliseconds time = patience(timeout);
    Message request{verb, std::to_string(time.count())};
    request.insert(request.end(), keys.begin(), keys.end());
    ZERO_CHECK(keys.size() <= store_wire::kMostKeys, "{}: {}: {} keys, expected at most {}", name(),
               described(request), keys.size(), store_wire::kMostKeys);
    std::size_t bytes = 0;
    for (const std::string& key : keys) bytes += sizeof(store_wire::Length) + key.size();
    ZERO_CHECK(bytes <= store_wire::kMostKeyBytes,
               "{}: {}: keys of {} bytes with their lengths, expected at most {}", name(),
               described(request), bytes, store_wire::kMostKeyBytes);
    const bool reports = options.report && time > options.silence;
    if (reports) request[1] = std::to_string(options.silence.count());
    Message reply = ask(request, reports ? options.silence : time);
    if (reports && reply.at(0) == "missing") {
      report("still waiting: " + nobody_set(reply, options.silence));
      const milliseconds rest = time - options.silence;
      request[1] = std::to_string(rest.count());
      reply = ask(request, rest);
    }
    ZERO_CHECK(reply.at(0) != "lost", "{}: nobody will set {}: {}", name(), keys_in(reply),
               reply.at(1));
    if (reply.at(0) == "missing") throw Error(nobody_set(reply, time));
    return reply;
  }

  /// The keys of a reply, behind its two other strings.
  static std::string keys_in(const Message& reply) {
    return listed(reply.begin() + std::min<std::ptrdiff_t>(2, std::ssize(reply)), reply.end());
  }

  std::string nobody_set(const Message& missing, milliseconds time) const {
    const std::string& absent = missing.at(1);
    const std::string hint =
        options.secret || meets_on_loopback(options.host, options.spread)
            ? ""
            : fmt::format("; this job has no secret, and ranks on several hosts need one: {}",
                          kMakeJobSecret);
    if (absent.empty()) {
      return fmt::format("{}: nobody set {} within {}; check that every rank reached this point",
                         name(), keys_in(missing), timeout_text(time));
    }
    return fmt::format("{}: {} within {}; check that every rank was started{}", name(), absent,
                       timeout_text(time), hint);
  }
};

TcpStore::TcpStore(const Options& options) : state_(new State{.options = options}) {
  state_->check_place();
  if (options.rank == 0) {
    state_->server = std::make_unique<StoreServer>(options);
    state_->options.port = state_->server->port();
  }
  const auto deadline = Clock::now() + patience(options.timeout);
  state_->first = state_->connect_first(deadline);
  const Message reply = state_->talk(*state_->first, {"hello"}, Clock::now() + kAnswer);
  ZERO_CHECK(reply.at(0) == "ok", "{}: rank 0 refuses this process: {}", state_->name(),
             reply.back());
}

TcpStore::~TcpStore() {
  if (std::uncaught_exceptions() > state_->exceptions) return;
  try {
    state_->talk(*state_->first, {"bye"}, Clock::now() + kFarewell);
    if (state_->server) state_->server->wait_for_goodbyes(kFarewell);
  } catch (const std::exception&) {
    // Rank 0 is gone already and needs no goodbye.
  }
}

int TcpStore::port() const { return state_->options.port; }

void TcpStore::set(std::string_view key, std::string_view value) {
  const Message reply = state_->ask({"set", std::string(key), std::string(value)}, milliseconds(0));
  ZERO_CHECK(reply.at(0) == "ok", "{}: set({}): rank 0 refuses it: {}", state_->name(), shown(key),
             reply.back());
}

std::string TcpStore::get(std::string_view key, milliseconds timeout) {
  return get_all({std::string(key)}, timeout).front();
}

std::vector<std::string> TcpStore::get_all(const std::vector<std::string>& keys,
                                           milliseconds timeout) {
  std::vector<std::string> values;
  while (values.size() < keys.size()) {
    const auto rest = std::span(keys).subspan(values.size());
    Message reply = state_->ask_for("get", rest, timeout);
    ZERO_CHECK(reply.size() > 1 && reply.size() - 1 <= rest.size(),
               "{}: get_all: rank 0 gave {} values of {}", state_->name(), reply.size() - 1,
               rest.size());
    std::move(reply.begin() + 1, reply.end(), std::back_inserter(values));
  }
  return values;
}

void TcpStore::wait(const std::vector<std::string>& keys, milliseconds timeout) {
  if (keys.empty()) return;
  state_->ask_for("wait", keys, timeout);
}

std::optional<std::string> TcpStore::lost() {
  const Message reply = state_->ask({"lost?"}, kAnswer);
  return reply.at(0) == "lost" ? std::optional(reply.at(1)) : std::nullopt;
}

}  // namespace zero
