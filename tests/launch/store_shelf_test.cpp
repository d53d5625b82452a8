// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/rendezvous/store/reports.h"
#include "launch/rendezvous/store/shelf.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Message = StoreShelf::Message;

Message obeyed(StoreShelf& shelf, const Message& request, StoreShelf::Guest& guest) {
  return std::get<Message>(shelf.obey(request, guest));
}

TEST(StoreShelf, KeepsNoMoreBytesThanItMay) {
  StoreShelf shelf(1, "", 1000);
  StoreShelf::Guest guest;
  EXPECT_THAT(obeyed(shelf, {"set", "a", std::string(500, 'x')}, guest), ElementsAre("ok"));
  EXPECT_THAT(obeyed(shelf, {"set", "b", std::string(500, 'x')}, guest),
              ElementsAre("refused", HasSubstr("a store keeps at most 1000; it is for agreement")));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(obeyed(shelf, {"set", "a", std::string(800, 'y')}, guest), ElementsAre("ok"))
        << "a value that takes the place of another counts once";
  }
  EXPECT_THAT(obeyed(shelf, {"set", "c", ""}, guest), ElementsAre("refused", HasSubstr("bytes")));
}

TEST(StoreShelf, RequestsThatAreNoneAreErrors) {
  StoreShelf shelf(2);
  StoreShelf::Guest guest;
  for (const Message& request : {Message{"set", "a"},
                                 {"set", "a", "b", "c"},
                                 {"wait", "1"},
                                 {"get", "1"},
                                 {"get", "1", "a", "b"},
                                 {"wait", "x", "a"},
                                 {"wait", "-1", "a"},
                                 {"wait", "99999999999999999999", "a"},
                                 {"bye", "a"},
                                 {"format the disk"},
                                 {""}}) {
    EXPECT_NE(message_of([&] { shelf.obey(request, guest); }), "no error") << request[0];
  }
  EXPECT_THAT(message_of([&] { shelf.obey({"\033[2J"}, guest); }),
              "a request that a store does not know")
      << "what strangers send is not repeated";
}

TEST(StoreShelf, ARankIsThereOnce) {
  StoreShelf shelf(2);
  StoreShelf::Guest guest{.caller = {.rank = 1, .world = 2}};
  StoreShelf::Guest twin = guest;
  EXPECT_THAT(obeyed(shelf, {"hello"}, guest), ElementsAre("ok"));
  EXPECT_THAT(obeyed(shelf, {"hello"}, guest), ElementsAre("refused", HasSubstr("is there")));
  EXPECT_THAT(obeyed(shelf, {"hello"}, twin), ElementsAre("refused", HasSubstr("is there")));
  shelf.gone(twin);
  EXPECT_THAT(obeyed(shelf, {"lost?"}, guest), ElementsAre("ok"));
  shelf.gone(guest);
  EXPECT_THAT(obeyed(shelf, {"lost?"}, twin), ElementsAre("lost", HasSubstr("rank 1 is gone")));
}

TEST(StoreShelf, RanksThatNeverCameAreNamed) {
  StoreShelf shelf(12);
  StoreShelf::Guest guest{.caller = {.rank = 3, .world = 12}};
  obeyed(shelf, {"hello"}, guest);
  const auto wait = std::get<StoreShelf::Wait>(shelf.obey({"wait", "1", "a"}, guest));
  EXPECT_EQ(shelf.answer(wait, StoreShelf::Time::left), std::nullopt);
  EXPECT_THAT(
      shelf.answer(wait, StoreShelf::Time::over).value_or(Message{}),
      ElementsAre("missing", "ranks 0, 1, 2, 4, 5, 6, 7, 8 and 3 others have not come", "a"));
}

TEST(StoreReports, SayTheFirstAndCountTheRest) {
  std::vector<std::string> told;
  StoreReports reports([&](const std::string& text) { told.push_back(text); });
  for (int i = 0; i < 1000; ++i) reports.dropped("10.0.0.1:5", "it is a stranger");
  reports.cannot_accept("Too many open files");
  EXPECT_THAT(told, ElementsAre("[rank 0] store: a connection from 10.0.0.1:5 was dropped: it is "
                                "a stranger"));
  StoreReports failing([](const std::string&) { throw std::runtime_error("disk full"); });
  failing.dropped("10.0.0.1:5", "it is a stranger");
}

}  // namespace
}  // namespace zero
