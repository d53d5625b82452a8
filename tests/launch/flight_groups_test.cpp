// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Groups as a flight recorder knows them: by the names that it is given, and parts by their splits.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/consecutive.h"
#include "collectives/backends.h"
#include "collectives/forwarding_backend.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "launch/watch/fault_finder.h"
#include "launch/watch/run_faults.h"
#include "tests/launch/recorded_rank.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;

/// A rank that is recorded from the start of its world on, whose name is known.
struct RecordedOfWorld : Recorded {
  explicit RecordedOfWorld(Communicator& world, const FlightFileOptions& options = {})
      : Recorded(world, options) {
    recorder.know_group(world, "world", consecutive(0, world.size()));
  }

  /// The newest collective of the file, after one that `group` calls.
  FlightState::Collective call(Communicator& group) {
    std::vector<double> values(1, 1);
    host_all_reduce(group, *device, View::of(std::span<double>(values)), ReduceOp::sum, {"x"});
    wait_until([&] { return reader.read().open.empty(); });
    return reader.records().back().collective;
  }

  /// The same, with the ranks that the file has.
  std::string called(Communicator& group) {
    static_cast<void>(call(group));
    const FlightGroup found = reader.groups().at(reader.records().back().group);
    return fmt::format("#{} of {} {}", reader.records().back().collective.number, found.name,
                       fmt::join(found.ranks, " "));
  }
};

void expect_called(const std::string& found, const std::string& expected) {
  ZERO_CHECK(found == expected, "found \"{}\", expected \"{}\"", found, expected);
}

TEST(FlightGroups, TheFirstNameGivenStays) {
  local::run(2, [](Communicator& world) {
    Recorded rank(world);
    world.split(0, world.rank());  // nobody has named the group yet
    rank.recorder.know_group(world, "world", {0, 1});
    rank.recorder.know_group(world, "shard", {0, 1});
    ZERO_CHECK(rank.reader.groups().size() == 1 && rank.reader.groups()[0].name == "world",
               "the first name stays");
    ZERO_CHECK(rank.reader.read().last.at(0).group == "world", "an earlier call has the name too");
    world.split(0, world.rank());
    ZERO_CHECK(rank.reader.read().last.at(0).number == 2, "and is counted");
  });
}

TEST(FlightGroups, KnowsTheRanksOfSplits) {
  local::run(6, [](Communicator& world) {
    RecordedOfWorld rank(world);
    const int me = world.rank();
    const auto even = world.split(me % 2, me);
    expect_called(rank.called(*even),
                  fmt::format("#1 of part of world {} {} {}", me % 2, me % 2 + 2, me % 2 + 4));
    const auto turned = world.split(0, -me);
    expect_called(rank.called(*turned), "#1 of part of world 5 4 3 2 1 0");
    // Of the ranks of `turned`, 0 to 5: world ranks 5 to 0.
    const auto half = turned->split(turned->rank() < 3 ? 0 : 1, -turned->rank());
    expect_called(rank.called(*half), me > 2 ? "#1 of part of part of world 3 4 5"
                                             : "#1 of part of part of world 0 1 2");
    const auto some = world.split(me == 2 ? -1 : me == 4 ? 1 : 0, me);
    ZERO_CHECK((some == nullptr) == (me == 2), "a negative color gives no part");
    if (some && some->size() > 1) {
      expect_called(rank.called(*some), "#1 of part of world 0 1 3 5");
    }
    expect_called(rank.called(*even),
                  fmt::format("#2 of part of world {} {} {}", me % 2, me % 2 + 2, me % 2 + 4));
    // The world and parts with other ranks; one rank alone is no group.
    const std::size_t groups = some && some->size() > 1 ? 5 : 4;
    ZERO_CHECK(rank.reader.groups().size() == groups, "{} groups", rank.reader.groups().size());
  });
}

TEST(FlightGroups, ARankThatLeavesAPartWaitingIsToBlame) {
  std::array<std::optional<FlightState>, 3> states;
  std::latch waits(2);
  std::latch seen(1);
  local::run(3, [&](Communicator& world) {
    RecordedOfWorld rank(world);
    const auto part = world.split(0, -world.rank());
    rank.call(*part);
    if (world.rank() == 1) {
      waits.wait();
      states[1] = rank.reader.read();
      seen.count_down();
    }
    part->barrier(rank.device->communication(), {"blocks"});
    if (world.rank() != 1) {
      const auto me = static_cast<std::size_t>(world.rank());
      wait_until([&] {
        states[me] = rank.reader.read();
        return states[me]->open.size() == 1 && states[me]->open[0].started != 0;
      });
      waits.count_down();
      seen.wait();
    }
    rank.device->communication().synchronize();
  });
  const Blame blame = find_blame(std::array{*states[0], *states[1], *states[2]});
  EXPECT_THAT(blame.blamed, ElementsAre(1));
  EXPECT_THAT(blame.inside, ElementsAre(0, 2));
}

// Such as that of each load: their places in the file are few.
TEST(FlightGroups, PartsThatComeAndGoTakeOnePlaceAndAreCountedOn) {
  local::run(2, [](Communicator& world) {
    RecordedOfWorld rank(world, {.sizes = {.groups = 5, .group_ranks = 10}});
    for (int i = 1; i <= 40; ++i) {
      const auto part = world.split(0, world.rank());
      // A split of the part is a call of it, too.
      expect_called(rank.called(*part), fmt::format("#{} of part of world 0 1", 2 * i - 1));
      const auto turned = part->split(0, -part->rank());
      expect_called(rank.called(*turned), fmt::format("#{} of part of part of world 1 0", i));
    }
    ZERO_CHECK(rank.reader.groups().size() == 3, "{} groups", rank.reader.groups().size());
    const auto third = world.split(0, -world.rank());
    const auto fourth = third->split(0, third->rank());
    expect_called(rank.called(*third), "#2 of part of world 1 0");
    // The same name and ranks as those of the first part's parts.
    expect_called(rank.called(*fourth), "#41 of part of part of world 1 0");
    const auto fifth = fourth->split(0, 0);
    expect_called(rank.called(*fifth), "#1 of part of part of part of world 1 0");
    const std::size_t records = rank.reader.records().size();
    const auto sixth = fifth->split(0, 0);  // recorded, as a call of the fifth
    std::vector<double> values(1, 1);
    host_all_reduce(*sixth, *rank.device, View::of(std::span<double>(values)), ReduceOp::sum,
                    {"x"});
    ZERO_CHECK(rank.reader.records().size() == records + 1, "no room for another");
    expect_called(rank.called(*third), "#3 of part of world 1 0");
  });
}

TEST(FlightGroups, APartThatIsNeverUsedTakesNoPlace) {
  local::run(2, [](Communicator& world) {
    RecordedOfWorld rank(world);
    world.split(0, -world.rank());
    ZERO_CHECK(rank.reader.groups().size() == 1, "{} groups", rank.reader.groups().size());
  });
}

TEST(FlightGroups, PartsOfAnUnknownGroupAreUnknown) {
  local::run(2, [](Communicator& world) {
    Recorded rank(world);
    const auto part = world.split(0, world.rank());
    part->barrier(rank.device->communication(), {"x"});
    rank.device->communication().synchronize();
    for (const FlightGroup& group : rank.reader.groups()) {
      ZERO_CHECK(group.name.empty() && group.ranks.empty(), "found {}", group.name);
    }
  });
}

/// A backend from elsewhere, whose parts do not say whom they have.
class Forgetful final : public ForwardingBackend {
 public:
  explicit Forgetful(std::shared_ptr<CollectiveBackend> inner)
      : ForwardingBackend(std::move(inner)) {
    set_members({});
  }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override {
    return std::make_shared<Forgetful>(ForwardingBackend::split(color, key));
  }
};

TEST(FlightGroups, PartsThatDoNotSayWhomTheyHaveAreUnknown) {
  local::run(2, [](Communicator& world) {
    RecordedOfWorld rank(world);
    Communicator whole(std::make_shared<Forgetful>(world.implementation()));
    rank.recorder.know_group(whole, "whole", {0, 1});
    const auto part = whole.split(0, world.rank());
    expect_called(rank.called(*part), "#1 of  ");
  });
}

// The mesh splits the world before its groups can be named.
TEST(FlightGroups, AxesOfALaterMeshHaveTheirOwnNames) {
  local::run(4, [](Communicator& world) {
    RecordedOfWorld rank(world);
    const int me = world.rank();
    const std::string tensor = fmt::format("tensor {} {}", me / 2 * 2, me / 2 * 2 + 1);
    for (int round = 1; round <= 3; ++round) {
      Mesh mesh(world, {.replicate = 1, .shard = 2, .tensor = 2});
      rank.recorder.know_mesh(mesh);
      expect_called(rank.called(mesh.shard()),
                    fmt::format("#{} of shard {} {}", round, me % 2, me % 2 + 2));
      expect_called(rank.called(mesh.tensor()), fmt::format("#{} of {}", 2 * round - 1, tensor));
      Communicator& part = mesh.split(Axis::tensor, {0, mesh.index(Axis::tensor), 2});
      expect_called(rank.called(part), fmt::format("#{} of part of {}", round, tensor));
    }
    ZERO_CHECK(rank.reader.groups().size() == 4, "{} groups", rank.reader.groups().size());
  });
}

TEST(FlightGroups, AnotherBackendAtTheSameAddressIsAnotherGroup) {
  local::run(2, [](Communicator& world) {
    RecordedOfWorld rank(world);
    std::optional<ForwardingBackend> place;
    const auto placed = [&](const Communicator& inner) {
      place.emplace(inner);
      return std::make_unique<Communicator>(
          std::shared_ptr<CollectiveBackend>(&*place, [](CollectiveBackend* /*of place*/) {}));
    };
    const auto unknown = placed(world);
    expect_called(rank.called(*unknown), "#1 of  ");
    const auto known = placed(world);
    ZERO_CHECK(known->implementation().get() == unknown->implementation().get(), "one address");
    rank.recorder.know_group(*known, "known", {0, 1});
    expect_called(rank.called(*known), "#1 of known 0 1");
    const auto third = placed(world);
    expect_called(rank.called(*third), "#1 of  ");
  });
}

// Of a program: before it has a device and a mesh.
TEST(FlightGroups, RanksAreRecordedFromTheirStartOnAndOnce) {
  local::run(2, [](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), world.size());
    const FlightReader reader(own_path(file));
    RunFaults faults(world, std::move(file), std::nullopt);
    faults.begin("world");
    const auto expect_meeting = [&](std::uint64_t number) {
      all_meet(world);
      const FlightState state = reader.read();
      ZERO_CHECK(state.phase == "start" && state.step == -1, "in {}", state.phase);
      ZERO_CHECK(state.last.size() == 1 && state.last[0].group == "world" &&
                     state.last[0].name == "barrier(meeting)" && state.last[0].number == number,
                 "{} #{} of {}", state.last[0].name, state.last[0].number, state.last[0].group);
      ZERO_CHECK((state.last[0].ranks == std::vector<int>{0, 1}), "their numbers");
    };
    expect_meeting(1);
    const Mesh mesh(world, {});
    faults.record(mesh, world);
    expect_meeting(2);
  });
}

// As GPUs do, through NCCL: collectives of the world and of the hosts come in no common order.
TEST(FlightGroups, OfDevicesThatMeetByThemselvesTheHostsAreAGroupOfTheirOwn) {
  local::run(2, [](Communicator& hosts) {
    const auto devices = store_only::world({hosts.store(), hosts.rank(), 2}, {"a", "b"});
    FlightFile file = FlightFile::create("", hosts.rank(), hosts.size());
    const FlightReader reader(own_path(file));
    RunFaults faults(hosts, std::move(file), std::nullopt);
    faults.begin("hosts");
    const Mesh mesh(*devices, {});
    for (int laid_out = 0; laid_out < 2; ++laid_out) faults.record(mesh, *devices);
    all_meet(hosts);
    for (int i = 0; i < 2; ++i) all_meet(*devices);
    std::map<std::string, std::uint64_t> numbers;
    for (const FlightState::Collective& each : reader.read().last) {
      ZERO_CHECK((each.ranks == std::vector<int>{0, 1}), "ranks of {}", each.group);
      numbers[each.group] = each.number;
    }
    ZERO_CHECK((numbers == std::map<std::string, std::uint64_t>{{"hosts", 1}, {"world", 2}}),
               "{} groups", numbers.size());
  });
}

TEST(FlightGroups, OneRankAloneHasNone) {
  for (const std::size_t ranks : {1U, 2U}) {
    local::run(static_cast<int>(ranks), [&](Communicator& world) {
      Recorded rank(world);
      const auto alone = world.split(world.rank(), 0);  // a call of the world, if that has others
      rank.recorder.know_group(*alone, "alone", {world.rank()});
      alone->barrier(rank.device->communication(), {"x"});
      rank.device->communication().synchronize();  // a split comes while nothing is in flight
      alone->split(0, 0);
      ZERO_CHECK(rank.reader.groups().size() == ranks - 1, "{} groups",
                 rank.reader.groups().size());
      ZERO_CHECK(rank.reader.records().size() == ranks - 1, "{} calls",
                 rank.reader.records().size());
    });
  }
}

}  // namespace
}  // namespace zero::testing
