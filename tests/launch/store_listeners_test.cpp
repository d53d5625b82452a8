// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The sockets of the network at which a rank 0 can be reached, as the kernel lists them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/host.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As the kernel writes them.
constexpr const char* kLoopback = "0100007F";
constexpr const char* kLoopback6 = "00000000000000000000000001000000";
constexpr const char* kAny = "00000000";
constexpr const char* kAny6 = "00000000000000000000000000000000";

/// The inodes of this process's sockets.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(file, gone);
    constexpr std::string_view kPrefix = "socket:[";
    if (to.starts_with(kPrefix)) {
      inodes.insert(to.substr(kPrefix.size(), to.size() - kPrefix.size() - 1));
    }
  }
  return inodes;
}

/// The addresses, "ADDRESS:PORT" in hexadecimal digits, at which this process takes connections of
/// TCP or datagrams of UDP, without those of `before`.
std::vector<std::string> listeners(const std::vector<std::string>& before = {}) {
  constexpr std::string_view kListens = "0A";
  const std::set<std::string> own = own_sockets();
  std::vector<std::string> found;
  for (const std::string protocol : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream table("/proc/self/net/" + protocol);
    std::string line;
    std::getline(table, line);  // the names of the columns
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, address, remote, state, skipped, inode;
      words >> number >> address >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      const bool listens = state == kListens || protocol.starts_with("udp");
      if (listens && own.contains(inode)) found.push_back(address);
    }
  }
  std::erase_if(found, [&](const std::string& one) {
    return std::ranges::find(before, one) != before.end();
  });
  return found;
}

std::string at(const char* address, int port) { return fmt::format("{}:{:04X}", address, port); }

TEST(StoreListeners, ListenersAreFound) {
  const auto before = listeners();
  const ForeignListener one;
  EXPECT_THAT(listeners(before), ElementsAre(at(kLoopback, one.port())));
}

TEST(StoreListeners, WithoutASecretThereIsNone) {
  const auto before = listeners();
  for (const Spread spread : {Spread::unsaid, Spread::one_host, Spread::several_hosts}) {
    for (const std::string& host :
         {std::string("127.0.0.1"), std::string("localhost"), host_name()}) {
      const StoreOptions first{.host = host, .rank = 0, .world = 2, .spread = spread};
      TcpStore store(first);
      StoreOptions options = first;
      options.port = store.port();
      options.rank = 1;
      TcpStore second(options);
      EXPECT_THAT(listeners(before), IsEmpty()) << host;
    }
  }
}

/// A rank 0 with a secret, another rank that reaches it, and where rank 0 listens meanwhile.
std::vector<std::string> listening(const std::string& host, Spread spread, int& port) {
  const auto before = listeners();
  StoreOptions options{.host = host,
                       .rank = 0,
                       .world = 2,
                       .spread = spread,
                       .timeout = kPatience,
                       .secret = secret_of(kSecret)};
  TcpStore first(options);
  options.port = port = first.port();
  options.rank = 1;
  TcpStore second(options);
  second.set("a", "1");
  EXPECT_EQ(first.get("a", kPatience), "1") << host;
  return listeners(before);
}

TEST(StoreListeners, WithASecretAJobOfOneHostIsReachedThroughTheLoopbackAlone) {
  int port = 0;
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    for (const Spread spread : {Spread::unsaid, Spread::one_host}) {
      const auto found = listening(host, spread, port);
      EXPECT_THAT(found, ElementsAre(at(kLoopback, port))) << host;
    }
  }
  // Addresses that would be another host's, or reached from others: the launcher knows better.
  for (const std::string& host :
       {host_name(), std::string("192.0.2.1"), std::string("no-such-host.invalid")}) {
    const auto found = listening(host, Spread::one_host, port);
    EXPECT_THAT(found, ElementsAre(at(kLoopback, port))) << host;
  }
}

TEST(StoreListeners, TheLoopbackOfVersionSixIsOneToo) {
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has_one =
      probe >= 0 && ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) ::close(probe);
  if (!has_one) GTEST_SKIP() << "this host has no ::1";
  int port = 0;
  const auto found = listening("::1", Spread::one_host, port);
  EXPECT_THAT(found, ElementsAre(at(kLoopback6, port)));
}

TEST(StoreListeners, AJobOfSeveralHostsThatHasASecretListensOnAllAddresses) {
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    int port = 0;
    const auto found = listening(host, Spread::several_hosts, port);
    EXPECT_THAT(found, ElementsAre(AnyOf(at(kAny6, port), at(kAny, port)))) << host;
  }
}

}  // namespace
}  // namespace zero::testing
