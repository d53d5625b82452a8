// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/tcp_store.h"
#include "launch/rendezvous/store/tls.h"
#include "launch/rendezvous/store/wire.h"

namespace zero::testing {

constexpr std::chrono::seconds kPatience{20};

/// Whether it comes true within kPatience.
template <typename Condition>
bool soon(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline JobSecret secret_of(const std::string& words) { return {words, "the test"}; }
inline const std::string kSecret = "a secret of this test alone";

/// Rank 0's store, at a port that was free, and what it reported.
struct Job {
  explicit Job(int ranks, std::optional<JobSecret> job_secret = std::nullopt,
               std::chrono::milliseconds silence = kPatience, StoreLimits limits = {})
      : world(ranks),
        secret(std::move(job_secret)),
        first({.host = "127.0.0.1",
               .port = 0,
               .rank = 0,
               .world = ranks,
               .secret = secret,
               .report = [this](const std::string& text) { note(text); },
               .silence = silence,
               .limits = limits}) {}

  TcpStore::Options options(int rank) const {
    return {.host = "127.0.0.1",
            .port = first.port(),
            .rank = rank,
            .world = world,
            .timeout = kPatience,
            .secret = secret};
  }
  void note(const std::string& text) {
    const std::scoped_lock lock(mutex);
    told += text + "\n";
  }
  /// Whether it reports such a line, now or soon.
  bool reports(std::string_view words) {
    return soon([&] { return reported().find(words) != std::string::npos; });
  }
  std::string reported() {
    const std::scoped_lock lock(mutex);
    return told;
  }

  int world;
  std::mutex mutex;
  std::string told;
  std::optional<JobSecret> secret;
  TcpStore first;
};

/// What a job of two ranks does to the end; the store has two ranks.
inline void check_completes(Job& job) {
  TcpStore second(job.options(1));
  second.set("a", "1");
  EXPECT_EQ(job.first.get("a", kPatience), "1");
  job.first.set("b", "2");
  EXPECT_EQ(second.get("b", kPatience), "2");
  EXPECT_EQ(job.first.lost(), std::nullopt);
}

/// The address of this user's store with `port`, without the network.
struct LocalAddress {
  explicit LocalAddress(int port) {
    const std::string name = unix_socket_name(port);
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path, sizeof at.sun_path);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&at); }

  sockaddr_un at{};
  socklen_t length = 0;
};

/// Descriptors of this process, and one.
inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

inline sockaddr_in loopback(int port, in_addr_t address = INADDR_LOOPBACK) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = ::htons(static_cast<std::uint16_t>(port));
  at.sin_addr.s_addr = ::htonl(address);
  return at;
}

/// A connection to a port of the loopback, without any of the store's own code for sockets.
class RawClient {
 public:
  explicit RawClient(int port, in_addr_t address = INADDR_LOOPBACK)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in at = loopback(port, address);
    connected_ =
        socket_ >= 0 && ::connect(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }
  /// Takes an accepted socket over.
  struct Accepted {
    int socket;
  };
  explicit RawClient(Accepted accepted) : socket_(accepted.socket), connected_(true) {}
  ~RawClient() {
    if (socket_ >= 0) ::close(socket_);
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  RawClient& operator=(RawClient&&) = delete;

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }
  /// Sends no more.
  void end() const { ::shutdown(socket_, SHUT_WR); }
  void send(std::string_view bytes) const {
    static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  /// What comes next, at most `most` bytes; nothing if the connection ends, or stays silent.
  std::string received(std::size_t most = 65'536) const {
    pollfd ready{socket_, POLLIN, 0};
    std::string piece(most, ' ');
    if (::poll(&ready, 1, kPatienceMilliseconds) != 1) return "";
    const ssize_t got = ::recv(socket_, piece.data(), piece.size(), 0);
    piece.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return piece;
  }
  /// Whether the other end closes the connection, whatever it says before.
  bool is_closed() const {
    pollfd ready{socket_, POLLIN, 0};
    std::array<char, 4096> piece{};
    while (::poll(&ready, 1, kPatienceMilliseconds) == 1) {
      if (::recv(socket_, piece.data(), piece.size(), 0) <= 0) return true;
    }
    return false;
  }
  /// Whether the other end has closed the connection by now.
  bool is_closed_already() const {
    std::array<char, 4096> piece{};
    for (;;) {
      const ssize_t got = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
      if (got == 0) return true;
      if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
    }
  }

 private:
  static constexpr int kPatienceMilliseconds = 20'000;

  int socket_;
  bool connected_ = false;
};

/// A client that knows the secret and, if it has introduced itself, is no rank. Blocking calls.
class ProvenClient {
 public:
  explicit ProvenClient(int port) : stream_(io_, tls_.context()) {
    using boost::asio::ip::tcp;
    tcp::socket socket(io_);
    socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)});
    stream_.next_layer() = StoreSocket(std::move(socket));
    stream_.handshake(boost::asio::ssl::stream_base::client);
  }
  store_wire::Message introduce(const store_wire::Identity& identity = {.rank = 1, .world = 2}) {
    ask(store_wire::introduction_of(identity));
    return answer();
  }
  void ask(const store_wire::Message& request) { send(store_wire::framed(request)); }
  void send(std::string_view bytes) {
    boost::system::error_code ended;
    boost::asio::write(stream_, boost::asio::buffer(bytes), ended);
  }
  /// Empty if the connection ends.
  store_wire::Message answer() {
    for (;;) {
      if (const auto body = frames_.next()) return store_wire::unframed(*body);
      std::array<char, 4096> piece{};
      boost::system::error_code ended;
      const std::size_t size = stream_.read_some(boost::asio::buffer(piece), ended);
      if (ended) return {};
      frames_.append({piece.data(), size});
    }
  }

 private:
  boost::asio::io_context io_;
  StoreTls tls_{secret_of(kSecret), StoreTls::End::client};
  StoreStream stream_;
  store_wire::FrameReader frames_{1U << 20U};
};

/// A listening socket of the loopback that belongs to somebody else.
class ForeignListener {
 public:
  ForeignListener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in at = loopback(0);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
  }
  ~ForeignListener() { ::close(socket_); }
  ForeignListener(const ForeignListener&) = delete;
  ForeignListener& operator=(const ForeignListener&) = delete;

  int port() const {
    sockaddr_in at{};
    socklen_t length = sizeof at;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &length);
    return ::ntohs(at.sin_port);
  }
  RawClient accepted() const {
    return RawClient(RawClient::Accepted{::accept(socket_, nullptr, nullptr)});
  }

 private:
  int socket_;
};

}  // namespace zero::testing
