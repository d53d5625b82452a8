// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "launch/flight/flight_reader.h"
#include "launch/flight/flight_trace.h"
#include "launch/flight/stragglers.h"
#include "launch/watch/diagnosis.h"
#include "launch/watch/judgement.h"
#include "launch/watch/last_words.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const fuzz::MemoryFile file(fuzz::text_of(data, size));
    const FlightReader reader(file.path());
    FlightState state = reader.read();
    fuzz::expect(state.rank >= 0 && state.rank < state.world, "a rank of the world");
    for (const auto& each : state.open) {
      for (const int rank : each.ranks) {
        fuzz::expect(rank >= 0 && rank < state.world, "ranks of the world");
      }
    }
    const LastWords& words = state.last_words;
    fuzz::expect(words.kind <= LastWords::kLastKind && words.what <= FoundFault::mismatch,
                 "last words of a known kind, and of a known fault");
    fuzz::expect(words.culprits.size() <= flight::kMostCulprits, "few culprits");
    for (const int rank : words.culprits) {
      fuzz::expect(rank >= 0 && rank < state.world, "culprits of the world");
    }
    std::vector<FlightState> states{state};
    state.rank = state.rank == 0 ? 1 : 0;
    states.push_back(state);
    const std::int64_t now = std::max(reader.changed(), reader.wall_clock_offset());
    fuzz::expect(!diagnose(states, {}, now).lines.empty() || state.over, "a diagnosis says why");
    const std::vector<RankDeath> deaths{{state.rank, "is gone"}};
    fuzz::expect(!diagnose(states, deaths, now).lines.empty(), "a death is told of");
    judge({.ranks = states, .deaths = deaths});
    last_words_text(states);
    const std::vector<FlightRing> rings{{0, 0, reader.groups(), reader.records()},
                                        {1, reader.wall_clock_offset(), reader.groups(), {}}};
    StragglerFinder stragglers;
    for (const FlightRing& ring : rings) stragglers.add(ring);
    fuzz::expect(stragglers.find().seconds >= 0, "no wait is negative");
    write_flight_trace(rings, "/dev/null");
  });
}
