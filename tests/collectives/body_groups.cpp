// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_values.h"
#include "collectives/store.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"

namespace zero::test {
using std::chrono::milliseconds;

namespace {

// A part of a part, in its order again: members are those of the part.
void check_split_of(Communicator& group) {
  const auto again = group.split(0, -group.rank());
  std::vector<int> members;
  for (int r = group.size() - 1; r >= 0; --r) members.push_back(r);
  expect(again->rank() == group.size() - 1 - group.rank(), "a part is split like the whole");
  expect(again->implementation()->members() == members, "a part of a part knows its members there");
  expect(again->implementation()->id() != group.implementation()->id(), "each backend has an id");
}

}  // namespace

// Two colors, keys that turn the order round, and the last rank in none where there are three.
void check_split(const Rank& rank) {
  const bool out = rank.world() >= 3 && rank.rank() == rank.world() - 1;
  const int color = out ? -1 : rank.rank() % 2;
  const auto group = rank.comm.split(color, -rank.rank());
  expect((group == nullptr) == out, "a negative color gives no group");
  std::vector<int> members;
  for (int r = rank.world() - 1; r >= 0; --r) {
    const bool member = r % 2 == color && !(rank.world() >= 3 && r == rank.world() - 1);
    if (member) members.push_back(r);
  }
  if (group) {
    expect(group->size() == static_cast<int>(members.size()), "a group holds its color");
    expect(members.at(static_cast<std::size_t>(group->rank())) == rank.rank(),
           "ranks of a group are ordered by key");
    expect(group->implementation()->members() == members, "a group knows its members");
    const auto count = static_cast<std::int64_t>(members.size());
    const Buffer buffer = rank.allocate(count, DType::i64);
    const Slices full = Slices::even(buffer.view(), group->size());
    rank.fill(full.of(group->rank()), [r = rank.rank()](std::int64_t) { return r; });
    rank.communicate([&](Stream& stream) {
      group->all_gather(full.of(group->rank()), full, stream, {"members"});
    });
    expect(rank.read(buffer.view()) == std::vector<double>(members.begin(), members.end()),
           "a group gathers among its members");
    group->store().set(fmt::format("from {}", group->rank()), fmt::format("color {}", color));
    for (int r = 0; r < group->size(); ++r) {
      expect(group->store().get(fmt::format("from {}", r), milliseconds(10000)) ==
                 fmt::format("color {}", color),
             "a group has its own store");
    }
    check_split_of(*group);
  }
  rank.communicate([&](Stream& stream) { rank.comm.barrier(stream, {"after split"}); });
  rank.read({});
}

void check_store(const Rank& rank) {
  Store& store = rank.comm.store();
  store.set(fmt::format("rank {}", rank.rank()), fmt::format("hello from {}", rank.rank()));
  std::vector<std::string> keys;
  for (int r = 0; r < rank.world(); ++r) keys.push_back(fmt::format("rank {}", r));
  store.wait(keys, milliseconds(10000));
  for (int r = 0; r < rank.world(); ++r) {
    expect(store.get(keys[static_cast<std::size_t>(r)], milliseconds(0)) ==
               fmt::format("hello from {}", r),
           "a value that is there needs no time");
  }
  store.set(fmt::format("again {}", rank.rank()), "first");
  store.set(fmt::format("again {}", rank.rank()), std::string("second\0with zero", 16));
  expect(store.get(fmt::format("again {}", rank.rank()), milliseconds(0)) ==
             std::string("second\0with zero", 16),
         "a later set replaces the value");
  if (rank.rank() == 0) store.set("large", std::string(300000, 'x'));
  expect(store.get("large", milliseconds(10000)) == std::string(300000, 'x'),
         "a large value arrives whole");

  // Who speaks comes first, and a store that is part of another one names its keys with the part.
  const auto names = [](const std::string& message, const std::string& first,
                        const std::string& last) {
    return message.find("nobody set ") != std::string::npos &&
           message.find(first) != std::string::npos &&
           message.ends_with(last + " within 5 ms; check that every rank reached this point");
  };
  expect(names(error_of([&] { static_cast<void>(store.get("nothing", milliseconds(5))); }),
               "nothing", "nothing"),
         "get names the key that is missing");
  expect(names(error_of([&] {
                 store.wait({"a", keys[0], "b"}, milliseconds(5));
               }),
               "a, ", "b"),
         "wait names the keys that are missing");
}

void check_exchange(Communicator& communicator, Device& device) {
  const auto text = [](int r) { return std::string(static_cast<std::size_t>(r * 37 % 90), 'a'); };
  const auto all = all_gather_texts(communicator, device, text(communicator.rank()), "texts");
  expect(static_cast<int>(all.size()) == communicator.size(), "one string per rank");
  for (int r = 0; r < communicator.size(); ++r) {
    expect(all[static_cast<std::size_t>(r)] == text(r), "strings come in rank order");
  }
}

}  // namespace zero::test
