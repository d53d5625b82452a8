// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/rendezvous/store/acceptor.h"
#include "launch/rendezvous/store/state.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Message = StoreState::Message;

Message obeyed(StoreState& state, const Message& request, StoreState::Client& client) {
  return std::get<Message>(state.obey(request, client));
}

TEST(StoreState, KeepsNoMoreBytesThanItMay) {
  StoreState state(1, "", 1000);
  StoreState::Client client;
  EXPECT_THAT(obeyed(state, {"set", "a", std::string(500, 'x')}, client), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, {"set", "b", std::string(500, 'x')}, client),
              ElementsAre("refused", HasSubstr("rank 0 keeps at most 1000; it is for agreement")));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(obeyed(state, {"set", "a", std::string(800, 'y')}, client), ElementsAre("ok"))
        << "a value that takes the place of another counts once";
  }
  EXPECT_THAT(obeyed(state, {"set", "c", ""}, client), ElementsAre("refused", HasSubstr("bytes")));
}

TEST(StoreState, RequestsThatAreNoneAreErrors) {
  StoreState state(2);
  StoreState::Client client;
  for (const Message& request : {Message{"set", "a"},
                                 {"set", "a", "b", "c"},
                                 {"wait", "1"},
                                 {"get", "1"},
                                 {"wait", "x", "a"},
                                 {"wait", "-1", "a"},
                                 {"wait", "99999999999999999999", "a"},
                                 {"bye", "a"},
                                 {"format the disk"},
                                 {""}}) {
    EXPECT_NE(error_of([&] { state.obey(request, client); }), "no error") << request[0];
  }
  EXPECT_THAT(error_of([&] { state.obey({"\033[2J"}, client); }),
              "a request that rank 0 does not know")
      << "what strangers send is not repeated";
}

TEST(StoreState, ARankIsThereOnce) {
  StoreState state(2);
  StoreState::Client client{.identity = {.rank = 1, .world = 2}};
  StoreState::Client twin = client;
  EXPECT_THAT(obeyed(state, {"hello"}, client), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, {"hello"}, client), ElementsAre("refused", HasSubstr("is there")));
  EXPECT_THAT(obeyed(state, {"hello"}, twin), ElementsAre("refused", HasSubstr("is there")));
  state.gone(twin, PeerLoss::ended);
  EXPECT_THAT(obeyed(state, {"lost?"}, client), ElementsAre("ok"));
  state.gone(client, PeerLoss::unreachable);
  EXPECT_THAT(obeyed(state, {"lost?"}, twin),
              ElementsAre("lost", HasSubstr("rank 1 is gone"), "1", "unreachable"));
}

TEST(StoreState, AllRanksThatAreLostAreToldTheFirstFirst) {
  StoreState state(3);
  for (const int rank : {2, 1}) {
    StoreState::Client client{.identity = {.rank = rank, .world = 3}};
    obeyed(state, {"hello"}, client);
    state.gone(client, rank == 2 ? PeerLoss::unreachable : PeerLoss::ended);
  }
  StoreState::Client asks;
  EXPECT_THAT(obeyed(state, {"lost?"}, asks),
              ElementsAre("lost", HasSubstr("rank 2 is gone"), "2", "unreachable", "1", "ended"));
}

TEST(StoreState, ARankThatProvesItsPlaceComesAgain) {
  StoreState state(3);
  StoreState::Client first{.identity = {.rank = 1, .world = 3}};
  StoreState::Client second = first;
  StoreState::Client third = first;
  StoreState::Client other{.identity = {.rank = 2, .world = 3}};
  const Message hello{"hello", "a proof"};
  EXPECT_THAT(obeyed(state, hello, first), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, {"hello"}, other), ElementsAre("ok"));
  state.gone(other, PeerLoss::ended);
  state.gone(first, PeerLoss::reset);
  EXPECT_THAT(obeyed(state, {"lost?"}, second),
              ElementsAre("lost", HasSubstr("rank 2 is gone"), "2", "ended", "1", "reset"));
  for (const Message& wrong : {Message{"hello"}, {"hello", ""}, {"hello", "another"}}) {
    EXPECT_THAT(obeyed(state, wrong, second), ElementsAre("refused", HasSubstr("is there")));
  }
  EXPECT_THAT(obeyed(state, hello, second), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, {"lost?"}, second),
              ElementsAre("lost", HasSubstr("rank 2 is gone"), "2", "ended"));
  StoreState::Client again{.identity = {.rank = 2, .world = 3}};
  EXPECT_THAT(obeyed(state, {"hello", ""}, again), ElementsAre("refused", HasSubstr("is there")))
      << "without a proof it is lost for good";
  EXPECT_THAT(obeyed(state, hello, third), ElementsAre("ok")) << "before the old one's end is seen";
  state.gone(second, PeerLoss::unreachable);
  EXPECT_EQ(obeyed(state, {"lost?"}, third).size(), 4U) << "the old one counts no more";
  EXPECT_THAT(obeyed(state, {"bye"}, third), ElementsAre("ok"));
  EXPECT_NE(error_of([&] { state.obey({"hello", std::string(257, 'p')}, first); }), "no error");
}

// It cannot tell a goodbye that was not heard from one whose answer was lost.
TEST(StoreState, ARankThatHasLeftMaySayGoodbyeAgain) {
  StoreState state(2);
  StoreState::Client first{.identity = {.rank = 1, .world = 2}};
  StoreState::Client second = first;
  StoreState::Client third = first;
  const Message hello{"hello", "a proof"};
  obeyed(state, hello, first);
  EXPECT_THAT(obeyed(state, {"bye"}, first), ElementsAre("ok"));
  state.gone(first, PeerLoss::reset);
  for (const Message& wrong : {Message{"hello"}, {"hello", "another"}}) {
    EXPECT_THAT(obeyed(state, wrong, second), ElementsAre("refused", HasSubstr("is there")));
  }
  EXPECT_THAT(obeyed(state, hello, second), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, {"set", "a", "1"}, second), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, {"bye"}, second), ElementsAre("ok"));
  EXPECT_THAT(obeyed(state, hello, third), ElementsAre("ok"));
  state.gone(third, PeerLoss::ended);
  EXPECT_THAT(obeyed(state, {"lost?"}, second), ElementsAre("ok")) << "its good end stands";
}

TEST(StoreState, RanksThatNeverCameAreNamed) {
  StoreState state(12);
  StoreState::Client client{.identity = {.rank = 3, .world = 12}};
  obeyed(state, {"hello"}, client);
  auto wait = std::get<StoreState::Wait>(state.obey({"wait", "1", "a"}, client));
  EXPECT_EQ(state.answer(wait, StoreState::Time::left), std::nullopt);
  EXPECT_THAT(
      state.answer(wait, StoreState::Time::over).value_or(Message{}),
      ElementsAre("missing", "ranks 0, 1, 2, 4, 5, 6, 7, 8 and 3 others have not come", "a"));
}

TEST(StoreState, AWaitStandsAtTheFirstKeyThatIsMissing) {
  StoreState state(1);
  StoreState::Client client;
  auto wait = std::get<StoreState::Wait>(state.obey({"get", "1", "a", "b", "c"}, client));
  EXPECT_EQ(state.answer(wait, StoreState::Time::left), std::nullopt);
  EXPECT_EQ(wait.missing(), "a");
  obeyed(state, {"set", "a", "1"}, client);
  obeyed(state, {"set", "c", "3"}, client);
  EXPECT_EQ(state.answer(wait, StoreState::Time::left), std::nullopt);
  EXPECT_EQ(wait.missing(), "b");
  auto late = wait;
  EXPECT_THAT(state.answer(late, StoreState::Time::over).value_or(Message{}),
              ElementsAre("missing", "rank 0 has not come", "b"));
  obeyed(state, {"set", "b", "2"}, client);
  obeyed(state, {"set", "a", "4"}, client);
  EXPECT_THAT(state.answer(wait, StoreState::Time::left).value_or(Message{}),
              ElementsAre("values", "4", "2", "3"));
}

TEST(StoreState, ALongListOfValuesEndsEarly) {
  StoreState state(1);
  StoreState::Client client;
  Message request{"get", "1"};
  for (const auto& [key, size] : {std::pair("a", 600'000), {"b", 400'000}, {"c", 600'000}}) {
    obeyed(state, {"set", key, std::string(static_cast<std::size_t>(size), 'x')}, client);
    request.emplace_back(key);
  }
  auto wait = std::get<StoreState::Wait>(state.obey(request, client));
  EXPECT_EQ(state.answer(wait, StoreState::Time::left).value_or(Message{}).size(), 3U);
}

TEST(StoreState, AValueThatIsLongerThanOtherRepliesComesAlone) {
  StoreState state(1);
  StoreState::Client client;
  obeyed(state, {"set", "short", "1"}, client);
  obeyed(state, {"set", "long", std::string(2U << 20U, 'x')}, client);
  const auto values = [&](const Message& request) {
    auto wait = std::get<StoreState::Wait>(state.obey(request, client));
    return state.answer(wait, StoreState::Time::left).value_or(Message{}).size() - 1;
  };
  EXPECT_EQ(values({"get", "1", "short", "long"}), 1U);
  EXPECT_EQ(values({"get", "1", "long", "short"}), 1U);
}

TEST(ConnectionLog, SayTheFirstAndCountTheRest) {
  std::vector<std::string> told;
  ConnectionLog reports([&](const std::string& text) { told.push_back(text); });
  for (int i = 0; i < 1000; ++i) reports.dropped("10.0.0.1:5", "it is a stranger");
  reports.cannot_accept("Too many open files");
  EXPECT_THAT(told,
              ElementsAre("[rank 0] rendezvous: a connection from 10.0.0.1:5 was dropped: it is "
                          "a stranger"));
  reports.end();
  EXPECT_EQ(told.back(), "[rank 0] rendezvous: 1000 more connections were dropped or not taken");
  reports.end();
  EXPECT_EQ(told.size(), 2U) << "each is counted once";
  ConnectionLog failing([](const std::string&) { throw std::runtime_error("disk full"); });
  failing.dropped("10.0.0.1:5", "it is a stranger");
}

}  // namespace
}  // namespace zero
