// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/launch/store_job.h"

namespace zero::testing {

/// The two ways into a store.
enum class Door {
  network,  ///< TCP, for those who know the job's secret
  local,    ///< a Unix socket, for this user's processes; everybody knows the secret
};

inline std::optional<JobSecret> secret_at(Door door) {
  return door == Door::network ? std::optional(secret_of(kSecret)) : std::nullopt;
}

/// A connection to the store with that port, which sends each piece at once.
inline RawClient knock(Door door, int port) {
  if (door == Door::network) {
    RawClient client(port);
    const int yes = 1;
    ::setsockopt(client.descriptor(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return client;
  }
  const LocalAddress at(port);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(socket, at.address(), at.length), 0);
  return RawClient(RawClient::Accepted{socket});
}

/// Ends a connection at once: on TCP without a farewell (RST).
inline void cut(const RawClient client) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(client.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/// The client's end of a TLS connection without a socket, so that each byte on its way can be
/// withheld or changed.
class HandMadeTls {
 public:
  /// For less time than `tls`.
  explicit HandMadeTls(StoreTls& tls) : end_(::SSL_new(tls.context().native_handle()), ::SSL_free) {
    ::SSL_set_bio(end_.get(), ::BIO_new(::BIO_s_mem()), ::BIO_new(::BIO_s_mem()));
    ::SSL_set_connect_state(end_.get());
  }

  /// Takes bytes of the server's; the bytes of the client's next flight of the handshake.
  std::string shaken(std::string_view received) {
    put(received);
    ::ERR_clear_error();
    ::SSL_do_handshake(end_.get());
    return taken();
  }
  bool is_done() const { return ::SSL_is_init_finished(end_.get()) == 1; }

  /// The records of a text, one for each 16 KiB.
  std::string sealed(std::string_view text) {
    ::ERR_clear_error();
    if (!text.empty()) ::SSL_write(end_.get(), text.data(), static_cast<int>(text.size()));
    return taken();
  }
  /// The text of the records that are whole.
  std::string opened(std::string_view received) {
    put(received);
    ::ERR_clear_error();
    std::string text;
    std::array<char, 16'384> piece{};
    for (;;) {
      const int size = ::SSL_read(end_.get(), piece.data(), static_cast<int>(piece.size()));
      if (size <= 0) return text;
      text.append(piece.data(), static_cast<std::size_t>(size));
    }
  }

 private:
  void put(std::string_view received) {
    if (received.empty()) return;
    ::BIO_write(::SSL_get_rbio(end_.get()), received.data(), static_cast<int>(received.size()));
  }
  std::string taken() {
    char* bytes = nullptr;
    const auto size = BIO_get_mem_data(::SSL_get_wbio(end_.get()), &bytes);
    std::string all(bytes, size > 0 ? static_cast<std::size_t>(size) : 0);
    static_cast<void>(BIO_reset(::SSL_get_wbio(end_.get())));
    return all;
  }

  std::unique_ptr<SSL, decltype(&::SSL_free)> end_;
};

/// A client that speaks the store's language, well or badly. Blocking calls.
class Stranger {
 public:
  using Message = store_wire::Message;
  /// Changes the bytes of a flight of the handshake, which has some: the first, 0, or the
  /// second, 1.
  using Change = std::function<void(int flight, std::string& bytes)>;

  Stranger(Door door, int port, StoreTls& tls) : socket_(knock(door, port)), tls_(tls) {}

  /// Whether this end holds the handshake for done.
  bool shake(const Change& change = [](int, std::string&) {}) {
    std::string received;
    for (int flight = 0;;) {
      std::string bytes = tls_.shaken(received);
      if (!bytes.empty()) change(flight++, bytes);
      socket_.send(bytes);
      if (tls_.is_done()) return true;
      received = socket_.received();
      if (received.empty()) return false;
    }
  }
  /// Shakes hands and introduces itself. Whether the server takes it.
  bool enter(const store_wire::Identity& identity) {
    if (!shake()) return false;
    say(store_wire::introduction_of(identity));
    return answer() == Message{"ok"};
  }

  void say(const Message& message) { send(store_wire::framed(message)); }
  /// In records of at most `record` bytes, which cross in pieces of at most `piece`.
  void send(std::string_view text, std::size_t record = 16'384, std::size_t piece = 65'536) {
    while (!text.empty()) {
      const std::string bytes = tls_.sealed(text.substr(0, record));
      for (std::size_t at = 0; at < bytes.size(); at += piece) {
        socket_.send(std::string_view(bytes).substr(at, piece));
      }
      text.remove_prefix(std::min(record, text.size()));
    }
  }
  /// The bytes of a text on their way, for send_raw().
  std::string sealed(std::string_view text) { return tls_.sealed(text); }
  void send_raw(std::string_view bytes) const { socket_.send(bytes); }

  /// The next answer; empty if the connection ends.
  Message answer() {
    for (;;) {
      if (const auto body = frames_.next()) return store_wire::unframed(*body);
      const std::string received = socket_.received();
      if (received.empty()) return {};
      frames_.append(tls_.opened(received));
    }
  }
  /// All answers until the server ends the connection.
  std::vector<Message> answers() {
    std::vector<Message> all;
    for (;;) {
      Message next = answer();
      if (next.empty()) return all;
      all.push_back(std::move(next));
    }
  }

  const RawClient& socket() const { return socket_; }
  /// The connection, without its language.
  RawClient leave() && { return std::move(socket_); }

 private:
  RawClient socket_;
  HandMadeTls tls_;
  store_wire::FrameReader frames_{store_wire::kLargest};
};

}  // namespace zero::testing
