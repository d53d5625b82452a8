// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/connection.h"

#include "base/error.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using local = asio::local::stream_protocol;

}  // namespace

// No operation is pending on return: the socket is closed once the patience is over.
template <typename AnySocket, typename Start>
std::size_t StoreConnection::run(const Patience& patience, AnySocket& socket, const Start& start) {
  boost::system::error_code result = asio::error::timed_out;
  std::size_t moved = 0;
  bool late = false;
  start([&](boost::system::error_code error, std::size_t size) {
    if (!late) result = error;
    moved = size;
  });
  io_.restart();
  do {
    io_.run_for(kBetweenLooks);
  } while (!io_.stopped() && patience());
  if (!io_.stopped()) {
    late = true;
    boost::system::error_code ignored;
    socket.close(ignored);
    io_.run();
  }
  if (result) throw boost::system::system_error(result);
  return moved;
}

void StoreConnection::connect_network(const std::string& host, const StoreOptions& options,
                                      const Patience& patience) {
  tcp::resolver resolver(io_);
  const auto places = resolver.resolve(host, std::to_string(options.port));
  tcp::socket socket(io_);
  run(patience, socket, [&](const auto& done) {
    asio::async_connect(
        socket, places,
        [done](boost::system::error_code error, const tcp::endpoint&) { done(error, 0); });
  });
  watch_peer(socket.native_handle(), options.vanished);
  address_ = socket.remote_endpoint().address().to_string();
  stream_.next_layer() = StoreSocket(std::move(socket));
}

void StoreConnection::connect_locally(int port, const Patience& patience) {
  local::socket socket(io_);
  run(patience, socket, [&](const auto& done) {
    socket.async_connect(local::endpoint(unix_socket_name(port)),
                         [done](boost::system::error_code error) { done(error, 0); });
  });
  // If the backlog is full, the system may return a socket that is not connected.
  boost::system::error_code error;
  static_cast<void>(socket.remote_endpoint(error));
  if (error) throw boost::system::system_error(asio::error::try_again);
  const PeerProcess peer = peer_process(socket.native_handle());
  ZERO_CHECK(peer.is_of_this_user(),
             "{} has taken the name at which this user's rank 0 is expected; give another "
             "MASTER_PORT",
             peer.text());
  stream_.next_layer() = StoreSocket(std::move(socket));
}

StoreConnection::StoreConnection(const StoreOptions& options, const Patience& patience)
    : tls_(options.secret.value_or(JobSecret::known_to_all()), StoreTls::End::client),
      stream_(io_, tls_.context()) {
  if (options.secret) {
    connect_with_secret(options, patience);
  } else {
    connect_locally(options.port, patience);
  }
  shake_hands(options.secret.has_value(), patience);
  const Message reply = ask(store_wire::introduction_of(
                                {.rank = options.rank, .world = options.world, .job = options.job}),
                            patience);
  ZERO_CHECK(reply.at(0) == "ok", "rank 0 refuses this process: {}", reply.back());
}

void StoreConnection::connect_with_secret(const StoreOptions& options, const Patience& patience) {
  const bool here = meets_on_loopback(options.host, options.spread);
  const std::string host = here && !is_loopback(options.host) ? "127.0.0.1" : options.host;
  try {
    connect_network(host, options, patience);
  } catch (const boost::system::system_error& error) {
    if (error.code() != asio::error::connection_refused || why_elsewhere(host)) throw;
    // Rank 0 may have been started without a secret: its refusal on the local socket tells more.
    try {
      connect_locally(options.port, patience);
    } catch (const std::exception&) {
      throw boost::system::system_error(error.code());
    }
  }
}

void StoreConnection::shake_hands(bool has_secret, const Patience& patience) {
  boost::system::error_code failed;
  try {
    run(patience, stream_.next_layer(), [&](const auto& done) {
      stream_.async_handshake(asio::ssl::stream_base::client,
                              [done](boost::system::error_code error) { done(error, 0); });
    });
  } catch (const boost::system::system_error& error) {
    failed = error.code();
  }
  if (!failed) return;
  switch (failure_of(failed)) {
    case HandshakeFailure::connection:
      throw boost::system::system_error(failed);
    case HandshakeFailure::other_protocol:
      fail(
          "what answers there is another program: {}; give a MASTER_PORT that is free on rank "
          "0's host",
          failed.message());
    case HandshakeFailure::other_secret:
      break;
  }
  ZERO_CHECK(has_secret,
             "rank 0 was started with a secret of its job, this process without; give it the same "
             "ZERO_JOB_SECRET, or ZERO_JOB_SECRET_FILE");
  fail(
      "rank 0 does not know this job's secret: it was started with another one, or with none; give "
      "all ranks the same ZERO_JOB_SECRET, or ZERO_JOB_SECRET_FILE");
}

StoreConnection::Message StoreConnection::ask(const Message& request, const Patience& patience) {
  const std::string frame = store_wire::framed(request);
  run(patience, stream_.next_layer(),
      [&](const auto& done) { asio::async_write(stream_, asio::buffer(frame), done); });
  for (;;) {
    if (const auto body = incoming_.next()) return store_wire::unframed(*body);
    const std::size_t size = run(patience, stream_.next_layer(), [&](const auto& done) {
      stream_.async_read_some(asio::buffer(piece_), done);
    });
    incoming_.append({piece_.data(), size});
  }
}

}  // namespace zero
