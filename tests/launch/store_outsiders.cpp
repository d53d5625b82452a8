// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Strangers that never prove the secret.
#include "tests/launch/store_visits.h"

namespace zero::testing {
namespace {

Fate says_nothing(Visit& visit) {
  visit.stays(visit.comes());
  return Fate::unknown;
}

Fate comes_in_a_crowd(Visit& visit) {
  const std::int64_t size = visit.draw.once_in(20) ? visit.draw.number(60, 180) : 8;
  for (std::int64_t i = 0; i < size; ++i) visit.stays(visit.comes());
  return Fate::unknown;
}

Fate is_cut_at_once(Visit& visit) {
  cut(visit.comes());
  return Fate::unknown;
}

Fate says_what_is_no_handshake(Visit& visit) {
  RawClient client = visit.comes();
  client.send(visit.bytes(1, 300));
  client.end();
  return Visit::dropped(client);
}

Fate speaks_without_tls(Visit& visit) {
  RawClient client = visit.comes();
  client.send(store_wire::framed(store_wire::introduction_of(visit.identity())));
  client.end();
  return Visit::dropped(client);
}

// Announces a record of a handshake, up to beyond the largest that TLS has.
Fate announces_a_long_record(Visit& visit) {
  RawClient client = visit.comes();
  std::string record("\x16\x03\x01", 3);
  const std::int64_t length = visit.draw.number(0, 65'535);
  record += static_cast<char>(length >> 8);
  record += static_cast<char>(length & 255);
  client.send(record + visit.bytes(0, 2000));
  return visit.ends(std::move(client));
}

Fate says_a_part_of_its_hello(Visit& visit) {
  RawClient client = visit.comes();
  std::string hello = HandMadeTls(visit.right).shaken("");
  hello.resize(static_cast<std::size_t>(visit.draw.number(1, std::ssize(hello) - 1)));
  client.send(hello);
  return visit.ends(std::move(client));
}

Fate changes_its_hello(Visit& visit) {
  RawClient client = visit.comes();
  std::string hello = HandMadeTls(visit.right).shaken("");
  for (std::int64_t i = visit.draw.number(1, 4); i > 0; --i) visit.flip(hello);
  client.send(hello);
  client.end();
  return Visit::dropped(client);
}

Fate changes_its_proof(Visit& visit) {
  Stranger client(visit.door, visit.port, visit.right);
  EXPECT_TRUE(client.shake([&](int flight, std::string& bytes) {
    if (flight == 1) visit.flip(bytes);
  }));
  client.socket().end();
  return Visit::dropped(client.socket());
}

Fate knows_another_secret(Visit& visit) {
  Stranger client(visit.door, visit.port, visit.wrong);
  EXPECT_FALSE(client.shake()) << "the server proves a secret that it does not know";
  return Visit::dropped(client.socket());
}

}  // namespace

std::vector<Behavior> behaviors_outside() {
  return {{"says nothing", says_nothing},
          {"comes in a crowd", comes_in_a_crowd},
          {"is cut at once", is_cut_at_once},
          {"says what is no handshake", says_what_is_no_handshake},
          {"speaks without TLS", speaks_without_tls},
          {"announces a long record", announces_a_long_record},
          {"says a part of its hello", says_a_part_of_its_hello},
          {"changes its hello", changes_its_hello},
          {"changes its proof", changes_its_proof},
          {"knows another secret", knows_another_secret}};
}

}  // namespace zero::testing
