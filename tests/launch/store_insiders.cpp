// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Clients that know the secret, and are faulty or worse.
#include <gmock/gmock.h>

#include <cstring>

#include "tests/launch/store_visits.h"

namespace zero::testing {
namespace {

using namespace store_wire;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kLongTime = "3600000";  // milliseconds

/// A key that only strangers use; there are few.
std::string key_of(Visit& visit) { return fmt::format("stranger/{}", visit.draw.number(0, 63)); }

/// The four bytes that announce a length.
std::string announced(std::int64_t length) {
  const auto value = static_cast<Length>(length);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

Fate does_not_say_who_it_is(Visit& visit) {
  Stranger client(visit.door, visit.port, visit.right);
  EXPECT_TRUE(client.shake());
  return visit.ends(std::move(client).leave());
}

Fate introduces_itself_wrongly(Visit& visit) {
  const std::string version(kVersion);
  const auto first = visit.draw.one_of<Message>({{"iam", "zero-store-4", "1", "2", ""},
                                                 {"iam", version, "1"},
                                                 {"iam", version, "3", "3", ""},
                                                 {"iam", version, "x", "3", ""},
                                                 {"iam", version, "0", "1048577", ""},
                                                 {"iam", version, "0", "3", std::string(257, 'j')},
                                                 {"set", "a", "1"},
                                                 {"hello"},
                                                 {""}});
  Stranger client(visit.door, visit.port, visit.right);
  EXPECT_TRUE(client.shake());
  client.say(first);
  EXPECT_THAT(client.answer(), ElementsAre("refused", ::testing::_)) << first[0];
  return Visit::dropped(client);
}

Fate introduces_itself_at_length(Visit& visit) {
  Stranger client(visit.door, visit.port, visit.right);
  EXPECT_TRUE(client.shake());
  client.send(announced(visit.draw.number(kLargestIntroduction + 1, UINT32_MAX)));
  return Visit::dropped(client);
}

Fate introduces_itself_twice(Visit& visit) {
  Stranger client = visit.enters();
  client.say(introduction_of(visit.identity()));
  return Visit::dropped(client);
}

// Also byte by byte, each in a record of its own or not.
Fate sets_and_gets(Visit& visit) {
  Stranger client = visit.enters();
  const auto record = static_cast<std::size_t>(visit.draw.one_of<int>({1, 100, 16'384}));
  const auto piece = static_cast<std::size_t>(visit.draw.one_of<int>({1, 30, 65'536}));
  const std::string key = key_of(visit);
  const std::string value = visit.bytes(0, record == 1 || piece == 1 ? 60 : 3000);
  client.send(framed({"set", key, value}), record, piece);
  EXPECT_THAT(client.answer(), ElementsAre("ok"));
  client.send(framed({"get", "0", key}), record, piece);
  EXPECT_THAT(client.answer(), ElementsAre("values", value));
  return Fate::unknown;
}

// All ranks of the job are there.
Fate takes_the_seat_of_a_rank(Visit& visit) {
  Stranger client = visit.enters();
  for (int i = 0; i < 2; ++i) {
    client.say({"hello"});
    EXPECT_THAT(client.answer(), ElementsAre("refused", HasSubstr("is there already")));
    client.say({"bye"});
    EXPECT_THAT(client.answer(), ElementsAre("ok"));
  }
  client.say({"lost?"});
  EXPECT_THAT(client.answer(), ElementsAre("ok"));
  return Fate::unknown;
}

Fate comes_from_another_world(Visit& visit) {
  Stranger client(visit.door, visit.port, visit.right);
  EXPECT_TRUE(client.enter({.rank = kMostRanks - 1, .world = kMostRanks}));
  client.say({"hello"});
  EXPECT_THAT(client.answer(), ElementsAre("refused", HasSubstr("one of 1048576 ranks")));
  return Fate::unknown;
}

Fate sends_a_message_that_is_too_long(Visit& visit) {
  Stranger client = visit.enters();
  client.send(announced(visit.draw.number(std::int64_t{kLargest} + 1, UINT32_MAX)));
  return Visit::dropped(client);
}

Fate sends_a_part_of_a_message(Visit& visit) {
  Stranger client = visit.enters();
  client.send(announced(visit.draw.number(200'000, kLargest)));
  client.send(std::string(static_cast<std::size_t>(visit.draw.number(0, 100'000)), 'x'));
  return visit.ends(std::move(client).leave());
}

Fate asks_what_is_no_request(Visit& visit) {
  const auto body = visit.draw.one_of<std::string>(
      {"", "abc", announced(5) + "ab", body_of({"set", "stranger"}),
       body_of({"set", "a", "b", "c"}), body_of({"wait", "0"}), body_of({"get", "-1", "stranger"}),
       body_of({"get", "x", "stranger"}), body_of({"wait", "99999999999999999999", "stranger"}),
       body_of({"bye", "bye"}), body_of({"format the disk"}), body_of({""}),
       std::string(4, '\0') + body_of({"bye"})});
  Stranger client = visit.enters();
  client.send(announced(std::ssize(body)) + body);
  return Visit::dropped(client);
}

Fate asks_before_it_is_answered(Visit& visit) {
  Stranger client = visit.enters();
  client.say({"wait", kLongTime, "never"});
  client.say({"lost?"});
  return Visit::dropped(client);
}

Fate leaves_while_it_waits(Visit& visit) {
  Stranger client = visit.enters();
  client.say({visit.draw.once_in(2) ? "wait" : "get", kLongTime, key_of(visit), "never"});
  if (visit.draw.once_in(2)) {
    client.socket().end();
    EXPECT_TRUE(client.socket().is_closed());
  } else if (visit.draw.once_in(2)) {
    cut(std::move(client).leave());
  }
  return Fate::unknown;
}

Fate waits_for_many_keys(Visit& visit) {
  Stranger client = visit.enters();
  const std::int64_t most = visit.draw.once_in(50) ? 65'536 : 500;
  const auto keys = static_cast<std::size_t>(visit.draw.number(1, most));
  Message request(keys + 2, "never");
  request[0] = "wait";
  request[1] = "0";
  for (int i = 0; i < 2; ++i) {
    client.say(request);
    const Message answer = client.answer();
    EXPECT_THAT(answer, SizeIs(keys + 2));
    EXPECT_EQ(answer.at(0), "missing");
  }
  return Fate::unknown;
}

Fate does_not_read_its_answers(Visit& visit) {
  Stranger client = visit.enters();
  client.say({"set", "stranger/long", std::string(300'000, 'x')});
  EXPECT_THAT(client.answer(), ElementsAre("ok"));
  std::string requests;
  for (int i = 0; i < 60; ++i) requests += framed({"get", "0", "stranger/long"});
  client.send(requests);
  LeftOpen::keep(visit.left_open.unread, std::move(client).leave(), 4);
  return Fate::unknown;
}

// The text is right, its records are not.
Fate changes_bytes_on_their_way(Visit& visit) {
  Stranger client = visit.enters();
  std::string bytes = client.sealed(framed({"set", key_of(visit), visit.bytes(0, 100)}));
  constexpr std::size_t kHeader = 5;  // of a record
  std::string sealed = bytes.substr(kHeader);
  visit.flip(sealed);
  client.send_raw(bytes.substr(0, kHeader) + sealed);
  return Visit::dropped(client);
}

Message drawn_request(Visit& visit) {
  switch (visit.draw.number(0, 6)) {
    case 0:
      return {"hello"};
    case 1:
      return {"bye"};
    case 2:
      return {"lost?"};
    case 3:
      return introduction_of(visit.identity());
    case 4:
      return {"get", "0", key_of(visit), "never"};
    case 5:
      return {"wait", "0", key_of(visit), key_of(visit)};
    default:
      return {"set", key_of(visit), visit.bytes(0, 100)};
  }
}

void change(Visit& visit, std::string& text) {
  const std::size_t at = visit.place(text);
  switch (visit.draw.number(0, 4)) {
    case 0:
      return visit.flip(text);
    case 1:
      text.erase(at, static_cast<std::size_t>(visit.draw.number(1, 8)));
      break;
    case 2:
      text.insert(at, visit.bytes(1, 8));
      break;
    case 3: {
      const std::string length = announced(visit.draw.one_of<std::int64_t>(
          {0, 1, 3, 17, 4095, 4097, kLargest, std::int64_t{kLargest} + 1, UINT32_MAX}));
      text.replace(at, length.size(), length);
      break;
    }
    default:
      text.resize(at);
  }
  if (text.empty()) text = "x";
}

Fate changes_its_messages(Visit& visit) {
  std::string text;
  if (!visit.draw.once_in(8)) text = framed(introduction_of(visit.identity()));
  std::string requests;
  for (std::int64_t i = visit.draw.number(1, 6); i > 0; --i) {
    requests += framed(drawn_request(visit));
  }
  // As a rule the introduction is left as it is: what comes behind it is worth more.
  if (visit.draw.once_in(4)) requests.insert(0, std::exchange(text, ""));
  for (std::int64_t i = visit.draw.number(0, 4); i > 0; --i) change(visit, requests);
  text += requests;
  Stranger client(visit.door, visit.port, visit.right);
  EXPECT_TRUE(client.shake());
  client.send(text, static_cast<std::size_t>(visit.draw.one_of<int>({7, 16'384})),
              static_cast<std::size_t>(visit.draw.one_of<int>({5, 65'536})));
  client.socket().end();
  for (const Message& answer : client.answers()) {
    EXPECT_THAT(answer[0], AnyOf("ok", "refused", "missing", "values"));
  }
  EXPECT_TRUE(client.socket().is_closed());
  return Fate::unknown;
}

}  // namespace

std::vector<Behavior> behaviors_inside() {
  return {{"does not say who it is", does_not_say_who_it_is},
          {"introduces itself wrongly", introduces_itself_wrongly},
          {"introduces itself at length", introduces_itself_at_length},
          {"introduces itself twice", introduces_itself_twice},
          {"sets and gets", sets_and_gets},
          {"takes the seat of a rank", takes_the_seat_of_a_rank},
          {"comes from another world", comes_from_another_world},
          {"sends a message that is too long", sends_a_message_that_is_too_long},
          {"sends a part of a message", sends_a_part_of_a_message},
          {"asks what is no request", asks_what_is_no_request},
          {"asks before it is answered", asks_before_it_is_answered},
          {"leaves while it waits", leaves_while_it_waits},
          {"waits for many keys", waits_for_many_keys},
          {"does not read its answers", does_not_read_its_answers},
          {"changes bytes on their way", changes_bytes_on_their_way},
          // The widest way has a larger share.
          {"changes its messages", changes_its_messages},
          {"changes its messages", changes_its_messages},
          {"changes its messages", changes_its_messages},
          {"changes its messages", changes_its_messages}};
}

}  // namespace zero::testing
