// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {

/// The state of a store, without sockets: keys, values, and the presence of the job's ranks. Used
/// by one thread, the server's, except wait_for_goodbyes().
class StoreState {
 public:
  using Message = store_wire::Message;

  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30U;

  /// A connection whose handshake is done.
  struct Client {
    store_wire::Identity identity;
    bool is_rank = false;    ///< its rank's first connection: if it ends, the rank is lost
    std::uint64_t turn = 0;  ///< which of the rank's first connections, where it may have several
  };
  /// A request that is answered once its keys are set, or after `patience` at the latest.
  struct Wait {
    std::chrono::milliseconds patience{};
    Message keys;
    bool wants_values = false;
    std::size_t found = 0;  ///< keys at the front that are known to be set

    /// The first key that the wait still lacks.
    const std::string& missing() const { return keys[found]; }
  };
  enum class Time { left, over };

  /// `job`: the name that all ranks must give. `most_bytes`: the limit of all keys and values
  /// together.
  explicit StoreState(int world, std::string job = "", std::uint64_t most_bytes = kMostBytes);

  /// Executes a client's request. Returns the answer, or the wait for keys. Throws zero::Error if
  /// the message is not a request.
  std::variant<Message, Wait> obey(const Message& request, Client& client);
  /// The answer to a wait; nothing as long as there is none. Another call is needed only once
  /// wait.missing() is set, a rank is lost, or the wait's time is over: keys are never removed.
  std::optional<Message> answer(Wait& wait, Time time) const;
  /// The client's connection has ended, without a goodbye if it was its rank's. A rank that has
  /// another one by now is not lost.
  void gone(Client& client, PeerLoss loss);

  /// Returns once every rank that came has said goodbye or is lost, or after `patience`.
  /// Thread-safe.
  void wait_for_goodbyes(std::chrono::milliseconds patience);

 private:
  /// One rank's state, as seen through its first connection.
  enum class Presence { absent, there, left, lost };

  /// Of a rank that may come again.
  struct Place {
    std::string proof;
    std::uint64_t turns = 0;  ///< its first connections so far, of which the last one counts
  };

  Message hello(Client& client, const std::string& proof);
  /// Whether the process that has had the rank's place gave this proof.
  bool proves(int rank, const std::string& proof) const;
  /// Whether the connection is its rank's, and no other has taken its place.
  bool counts(const Client& client) const;
  Message losses() const;
  Message set(const std::string& key, const std::string& value);
  void mark(int rank, Presence presence);
  std::string absent_ranks() const;

  int world_;
  std::string job_;
  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<int, Place> places_;                   // by rank
  std::vector<std::pair<int, PeerLoss>> losses_;  // of ranks that are lost, in their order

  mutable std::mutex mutex_;  // guards ranks_, but where the one thread that changes it reads it
  std::condition_variable changed_;
  std::vector<Presence> ranks_;
};

}  // namespace zero
