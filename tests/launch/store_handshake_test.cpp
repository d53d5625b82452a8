// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/handshake.h"
#include "tests/errors.h"
#include "tests/launch/store_job.h"

namespace zero {
namespace {

using namespace store_wire;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kSecret;
using testing::secret_of;

constexpr std::size_t kLengthBytes = 4;

std::string body(const std::string& frame) { return frame.substr(kLengthBytes); }

/// Both ends of a handshake, each with a secret of its own.
struct Handshake {
  explicit Handshake(const std::string& server_secret = kSecret,
                     const std::string& client_secret = kSecret)
      : server_knows(secret_of(server_secret)), client_knows(secret_of(client_secret)) {}

  JobSecret server_knows;
  JobSecret client_knows;
  ServerHandshake server{server_knows, fresh_nonce()};
  ClientHandshake client{client_knows, {.rank = 1, .world = 3, .job = "a job"}, fresh_nonce()};
};

TEST(StoreHandshake, BothEndsProveTheSecretAndThenUnderstandEachOther) {
  Handshake handshake;
  const std::string answer = handshake.client.answer(body(handshake.server.challenge()));
  EXPECT_EQ(answer.find(kSecret), std::string::npos);
  auto accepted = handshake.server.verify(body(answer));
  ASSERT_TRUE(accepted.has_value());
  EXPECT_EQ(accepted->identity.rank, 1);
  EXPECT_EQ(accepted->identity.world, 3);
  EXPECT_EQ(accepted->identity.job, "a job");
  auto channel = handshake.client.finish(body(accepted->frame));
  ASSERT_TRUE(channel.has_value());
  for (const std::string value : {"1", "2"}) {
    EXPECT_THAT(accepted->channel.opened(body(channel->sealed({"set", "a", value}))),
                ElementsAre("set", "a", value));
    EXPECT_THAT(channel->opened(body(accepted->channel.sealed({"ok"}))), ElementsAre("ok"));
  }
}

TEST(StoreHandshake, NeitherEndTakesItsOwnMessagesForTheOthers) {
  Handshake handshake;
  const std::string answer = handshake.client.answer(body(handshake.server.challenge()));
  auto accepted = handshake.server.verify(body(answer));
  ASSERT_TRUE(accepted.has_value());
  auto channel = handshake.client.finish(body(accepted->frame));
  ASSERT_TRUE(channel.has_value());
  EXPECT_THAT(message_of([&] { channel->opened(body(channel->sealed({"ok"}))); }),
              HasSubstr("changed or put in on its way"));
  EXPECT_THAT(message_of([&] { accepted->channel.opened(body(accepted->channel.sealed({"ok"}))); }),
              HasSubstr("changed or put in on its way"));
}

TEST(StoreHandshake, AProofWithAnotherSecretIsRefused) {
  Handshake handshake(kSecret, "another secret of a test");
  const std::string answer = handshake.client.answer(body(handshake.server.challenge()));
  EXPECT_FALSE(handshake.server.verify(body(answer)).has_value());
  EXPECT_FALSE(handshake.client.finish(body(ServerHandshake::refusal())).has_value());
}

TEST(StoreHandshake, AProofIsOfUseOnce) {
  Handshake handshake;
  const std::string answer = handshake.client.answer(body(handshake.server.challenge()));
  EXPECT_TRUE(handshake.server.verify(body(answer)).has_value());
  const ServerHandshake next(handshake.server_knows, fresh_nonce());
  EXPECT_FALSE(next.verify(body(answer)).has_value());
}

TEST(StoreHandshake, AProofIsOfOneRankWorldAndJobAlone) {
  Handshake handshake;
  const Message answer =
      unframed(body(handshake.client.answer(body(handshake.server.challenge()))));
  for (const auto& [part, text] : {std::pair{1, "2"}, {2, "4"}, {3, "another job"}}) {
    Message changed = answer;
    changed[static_cast<std::size_t>(part)] = text;
    EXPECT_FALSE(handshake.server.verify(body_of(changed)).has_value());
  }
  EXPECT_TRUE(handshake.server.verify(body_of(answer)).has_value());
}

TEST(StoreHandshake, TheServerMustProveTheSecretToo) {
  Handshake handshake;
  const std::string challenge = handshake.server.challenge();
  const Message answer = unframed(body(handshake.client.answer(body(challenge))));
  EXPECT_FALSE(handshake.client.finish(body_of({"proven", std::string(32, 'x')})).has_value());
  EXPECT_FALSE(handshake.client.finish(body_of({"proven", ""})).has_value());
  EXPECT_FALSE(handshake.client.finish(body_of({"proven", answer[5]})).has_value())
      << "the client's own proof, sent back";
  const auto accepted = handshake.server.verify(body_of(answer));
  ClientHandshake other(handshake.client_knows, {.rank = 1, .world = 3, .job = "a job"},
                        fresh_nonce());
  other.answer(body(challenge));
  EXPECT_FALSE(other.finish(body(accepted->frame)).has_value()) << "a proof for another client";
}

TEST(StoreHandshake, SealedMessagesCannotBeChangedRepeatedLeftOutOrSentBack) {
  const auto pair = [] { return std::pair(Channel("one", "other"), Channel("other", "one")); };
  const auto refused = [](Channel& channel, const std::string& text) {
    return message_of([&] { channel.opened(text); });
  };
  const auto changed = HasSubstr("a message that was changed or put in on its way");
  {
    auto [one, other] = pair();
    std::string text = body(one.sealed({"set", "a", "1"}));
    text.back() = '2';
    EXPECT_THAT(refused(other, text), changed);
  }
  {
    auto [one, other] = pair();
    const std::string text = body(one.sealed({"set", "a", "1"}));
    EXPECT_THAT(refused(one, text), changed) << "sent back";
    EXPECT_THAT(other.opened(text), ElementsAre("set", "a", "1"));
    EXPECT_THAT(refused(other, text), changed) << "repeated";
  }
  {
    auto [one, other] = pair();
    one.sealed({"left", "out"});
    EXPECT_THAT(refused(other, body(one.sealed({"bye"}))), changed);
    EXPECT_THAT(refused(other, "short"), HasSubstr("a message without its seal"));
  }
}

TEST(StoreHandshake, WhatIsNoHandshakeIsAnError) {
  Handshake handshake;
  const auto judged = [&](const Message& message) {
    return message_of([&] { handshake.server.verify(body_of(message)); });
  };
  const std::string magic(kMagic);
  const std::string nonce(32, 'n');
  EXPECT_THAT(judged({"GET / HTTP/1.1"}), HasSubstr("not the handshake of a rank of this program"));
  EXPECT_THAT(judged({"set", "a", "1"}), HasSubstr("not the handshake of a rank of this program"));
  EXPECT_THAT(judged({magic, "0", "1", "job", "short", "proof"}), HasSubstr("a nonce of 5 bytes"));
  for (const std::string rank : {"", "x", "-1", "3", "1 ", "99999999999999999999"}) {
    EXPECT_THAT(judged({magic, rank, "3", "job", nonce, ""}),
                HasSubstr("no whole number from 0 to 2"))
        << rank;
  }
  EXPECT_THAT(judged({magic, "0", "1", std::string(kMostJobBytes + 1, 'j'), nonce, ""}),
              HasSubstr("a job whose name has 257 bytes, expected at most 256"));
  EXPECT_THAT(judged({magic, "0", "0", "job", nonce, ""}), HasSubstr("no whole number from 1 to"));
  EXPECT_THAT(message_of([&] {
                handshake.client.answer(body_of({"zero-store-9", nonce}));
              }),
              HasSubstr("expected zero-store-4; all ranks must run one version"));
  EXPECT_THAT(message_of([&] { static_cast<void>(handshake.client.finish(body_of({"ok"}))); }),
              HasSubstr("found no end of a handshake"));
}

TEST(StoreWire, MessagesComeInPieces) {
  FrameReader reader(100);
  std::vector<std::string> bodies;
  for (const char byte : framed({"set", "a", ""}) + framed({"bye"})) {
    reader.append({&byte, 1});
    while (auto whole = reader.next()) bodies.push_back(*whole);
  }
  ASSERT_EQ(bodies.size(), 2U);
  EXPECT_THAT(unframed(bodies[0]), ElementsAre("set", "a", ""));
  EXPECT_THAT(unframed(bodies[1]), ElementsAre("bye"));
}

TEST(StoreWire, MessagesThatAreNoneAreRefused) {
  EXPECT_THAT(message_of([] {
                FrameReader reader(kLargestHandshake);
                reader.append("GET ");
                reader.next();
              }),
              HasSubstr("takes at most 4096"));
  EXPECT_THAT(message_of([] { unframed("ab"); }), HasSubstr("ends too early"));
  EXPECT_THAT(message_of([] { unframed(std::string_view("\5\0\0\0ab", 6)); }),
              HasSubstr("ends too early"));
  EXPECT_THAT(message_of([] { unframed(""); }), HasSubstr("an empty message"));
  EXPECT_THAT(message_of([] { framed({std::string((64U << 20U) + 1, 'x')}); }),
              HasSubstr("takes at most"));
  EXPECT_THAT(message_of([] { unframed(std::string(4 * (kMostParts + 1), '\0')); }),
              HasSubstr("a message of more than 1048584 strings"));
}

}  // namespace
}  // namespace zero
