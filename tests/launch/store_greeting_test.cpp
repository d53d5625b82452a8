// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/rendezvous/digest.h"
#include "launch/rendezvous/store/greeting.h"
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

/// Both ends of a greeting, each with a secret of its own.
struct Greeting {
  explicit Greeting(const std::string& server_secret = kSecret,
                    const std::string& caller_secret = kSecret)
      : server_knows(secret_of(server_secret)), caller_knows(secret_of(caller_secret)) {}

  JobSecret server_knows;
  JobSecret caller_knows;
  ServerGreeting server{server_knows, fresh_nonce()};
  CallerGreeting caller{caller_knows, {.rank = 1, .world = 3, .job = "a job"}, fresh_nonce()};
};

TEST(StoreGreeting, BothEndsProveTheSecretAndThenUnderstandEachOther) {
  Greeting greeting;
  const std::string answer = greeting.caller.answer(body(greeting.server.banner()));
  EXPECT_EQ(answer.find(kSecret), std::string::npos);
  auto welcome = greeting.server.judge(body(answer));
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->caller.rank, 1);
  EXPECT_EQ(welcome->caller.world, 3);
  EXPECT_EQ(welcome->caller.job, "a job");
  auto session = greeting.caller.conclude(body(welcome->frame));
  ASSERT_TRUE(session.has_value());
  for (const std::string value : {"1", "2"}) {
    EXPECT_THAT(welcome->session.opened(body(session->sealed({"set", "a", value}))),
                ElementsAre("set", "a", value));
    EXPECT_THAT(session->opened(body(welcome->session.sealed({"ok"}))), ElementsAre("ok"));
  }
}

TEST(StoreGreeting, NeitherEndTakesItsOwnMessagesForTheOthers) {
  Greeting greeting;
  const std::string answer = greeting.caller.answer(body(greeting.server.banner()));
  auto welcome = greeting.server.judge(body(answer));
  ASSERT_TRUE(welcome.has_value());
  auto session = greeting.caller.conclude(body(welcome->frame));
  ASSERT_TRUE(session.has_value());
  EXPECT_THAT(message_of([&] { session->opened(body(session->sealed({"ok"}))); }),
              HasSubstr("changed or put in on its way"));
  EXPECT_THAT(message_of([&] { welcome->session.opened(body(welcome->session.sealed({"ok"}))); }),
              HasSubstr("changed or put in on its way"));
}

TEST(StoreGreeting, AProofWithAnotherSecretIsRefused) {
  Greeting greeting(kSecret, "another secret of a test");
  const std::string answer = greeting.caller.answer(body(greeting.server.banner()));
  EXPECT_FALSE(greeting.server.judge(body(answer)).has_value());
  EXPECT_FALSE(greeting.caller.conclude(body(ServerGreeting::refusal())).has_value());
}

TEST(StoreGreeting, AProofIsOfUseOnce) {
  Greeting greeting;
  const std::string answer = greeting.caller.answer(body(greeting.server.banner()));
  EXPECT_TRUE(greeting.server.judge(body(answer)).has_value());
  const ServerGreeting next(greeting.server_knows, fresh_nonce());
  EXPECT_FALSE(next.judge(body(answer)).has_value());
}

TEST(StoreGreeting, AProofIsOfOneRankWorldAndJobAlone) {
  Greeting greeting;
  const Message answer = unframed(body(greeting.caller.answer(body(greeting.server.banner()))));
  for (const auto& [part, text] : {std::pair{1, "2"}, {2, "4"}, {3, "another job"}}) {
    Message changed = answer;
    changed[static_cast<std::size_t>(part)] = text;
    EXPECT_FALSE(greeting.server.judge(body_of(changed)).has_value());
  }
  EXPECT_TRUE(greeting.server.judge(body_of(answer)).has_value());
}

TEST(StoreGreeting, TheServerMustProveTheSecretToo) {
  Greeting greeting;
  const std::string banner = greeting.server.banner();
  const Message answer = unframed(body(greeting.caller.answer(body(banner))));
  EXPECT_FALSE(greeting.caller.conclude(body_of({"proven", std::string(32, 'x')})).has_value());
  EXPECT_FALSE(greeting.caller.conclude(body_of({"proven", ""})).has_value());
  EXPECT_FALSE(greeting.caller.conclude(body_of({"proven", answer[5]})).has_value())
      << "the caller's own proof, sent back";
  const auto welcome = greeting.server.judge(body_of(answer));
  CallerGreeting other(greeting.caller_knows, {.rank = 1, .world = 3, .job = "a job"},
                       fresh_nonce());
  other.answer(body(banner));
  EXPECT_FALSE(other.conclude(body(welcome->frame)).has_value()) << "a proof for another caller";
}

TEST(StoreGreeting, SealedMessagesCannotBeChangedRepeatedLeftOutOrSentBack) {
  const auto pair = [] { return std::pair(Session("one", "other"), Session("other", "one")); };
  const auto refused = [](Session& session, const std::string& text) {
    return message_of([&] { session.opened(text); });
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

TEST(StoreGreeting, WhatIsNoGreetingIsAnError) {
  Greeting greeting;
  const auto judged = [&](const Message& message) {
    return message_of([&] { greeting.server.judge(body_of(message)); });
  };
  const std::string magic(kMagic);
  const std::string nonce(32, 'n');
  EXPECT_THAT(judged({"GET / HTTP/1.1"}), HasSubstr("not the greeting of a rank of ours"));
  EXPECT_THAT(judged({"set", "a", "1"}), HasSubstr("not the greeting of a rank of ours"));
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
                greeting.caller.answer(body_of({"zero-store-9", nonce}));
              }),
              HasSubstr("expected zero-store-3; all ranks must run one version"));
  EXPECT_THAT(message_of([&] { static_cast<void>(greeting.caller.conclude(body_of({"ok"}))); }),
              HasSubstr("found no end of a greeting"));
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
                FrameReader reader(kLargestGreeting);
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
