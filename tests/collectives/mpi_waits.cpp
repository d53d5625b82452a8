// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Rank 1 does not come: mpi_waits CASE LAYOUT. CASE: stopped, loops, slow, chain, mesh; LAYOUT: a
// letter for the host of each rank, or "messages".
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"
#include "tests/collectives/mpi_program.h"
#include "tests/errors.h"
#include "tests/told_lines.h"

namespace zero::test {
namespace {

using namespace std::chrono_literals;

constexpr int kStuck = 1;

void gather(Communicator& world, Device& device) {
  std::vector<float> values(static_cast<std::size_t>(100 * world.size()), -1.0F);
  const Slices full = Slices::even(View::of(std::span(values)), world.size());
  for (float& value : full.of(world.rank()).as<float>()) value = static_cast<float>(world.rank());
  world.all_gather(full.of(world.rank()), full, device.communication(), {"h.3"});
  device.communication().synchronize();
  for (int rank = 0; rank < world.size(); ++rank) {
    expect(std::ranges::all_of(full.of(rank).as<float>(),
                               [&](float value) { return value == static_cast<float>(rank); }),
           "the values are right");
  }
}

/// What this rank is told of rank 1.
std::string state_of(Communicator& world, const mpi::Options& options, const std::string& does) {
  const std::string pid = world.store().get("pid", 60s);
  const auto& hosts = options.hosts;
  const auto host_of = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  if (hosts.empty() || host_of(world.rank()) == host_of(kStuck)) {
    return fmt::format("process {} {}", pid, does);
  }
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return fmt::format("on host {}: unknown", name.data());
}

/// Rank 1 comes once all others have been warned.
void check_slow(Communicator& world, Device& device, const mpi::Options& options) {
  const auto key = [](int rank) { return fmt::format("warned/{}", rank); };
  testing::ToldLines lines;
  world.set_wait_limits({.warning = 200ms, .timeout = 0ms, .warn = [&](const std::string& line) {
                           lines.add(line);
                           if (line.find(" for rank 1 (") == std::string::npos) return;
                           world.store().set(key(world.rank()), "");
                         }});
  if (world.rank() == kStuck) {
    for (int rank = 0; rank < world.size(); ++rank) {
      if (rank != kStuck) world.store().wait({key(rank)}, 60s);
    }
    return gather(world, device);
  }
  const std::string state = state_of(world, options, "sleeps");
  gather(world, device);
  const auto line_of = [&](const std::string& does) {
    return fmt::format(
        "[rank {}] all_gather(h.3), step 12: waiting for 0.2 s for rank 1 ({}); no timeout "
        "(run.collective_timeout is 0)",
        world.rank(), does);
  };
  const std::string line = line_of(state);
  // It may be seen between two of its looks at the store.
  const std::string runs = line_of(state_of(world, options, "runs"));
  const auto said = lines.all();
  expect(std::ranges::count(said, line) + std::ranges::count(said, runs) > 0,
         fmt::format("\"{}\" warns, found \"{}\"", line, said.at(0)));
}

void stop_coming(const std::string& how) {
  if (how == "stopped") std::raise(SIGSTOP);
  for (volatile bool always = true; always;) {
  }
}

/// The error names rank 1 and what its process does, on all others.
void check_stuck(Communicator& world, Device& device, const mpi::Options& options,
                 const std::string& how) {
  testing::ToldLines lines;
  world.set_wait_limits({.warning = 200ms, .timeout = 1s, .warn = lines.adder()});
  if (world.rank() == kStuck) return stop_coming(how);
  const std::string state = state_of(world, options, how == "stopped" ? "is stopped" : "runs");
  const std::string message = error_of([&] { gather(world, device); });
  const std::string mine = fmt::format("[rank {}] all_gather(h.3)", world.rank());
  expect(message.starts_with(mine), message);
  // Another rank may have been the first to give up; one on the same host where there is one.
  const bool own = message.starts_with(mine + ", step 12: waiting for 1 s for rank 1 (" + state);
  const bool told =
      message.find(": the group has failed: [rank ") != std::string::npos &&
      message.find("all_gather(h.3), step 12: waiting for 1 s for rank 1 (") != std::string::npos;
  expect(own || told, message);
  expect(message.find("), the timeout of collectives; find out what holds each of them up") !=
             std::string::npos,
         message);
  // On a host that rank 1 is not on, others of that host are waited for too.
  const auto said = lines.all();
  if (options.hosts.empty() || std::ranges::count(options.hosts, options.hosts.at(kStuck)) == 1) {
    const std::string line = mine + ", step 12: waiting for 0.2 s for rank 1 (" + state + ")";
    const std::string end = "; the job ends after 1 s (run.collective_timeout)";
    // Warnings, of other ranks too if they were late themselves.
    expect(!said.empty() && std::ranges::all_of(said,
                                                [&](const std::string& each) {
                                                  return each.find("rank 1 (" + state + ")") !=
                                                             std::string::npos &&
                                                         each.ends_with(end);
                                                }),
           fmt::format("\"{}\", found {}: {}", line, said.size(), said.empty() ? "" : said[0]));
  }
  std::fprintf(stderr, "%s\n", message.c_str());
  if (world.rank() != 0) {
    for (;;) pause();  // the first rank ends the job
  }
  std::this_thread::sleep_for(1s);
  fail("as it should be");
}

/// Rank 2, the first whose patience is over, waits for rank 0 of another host, which itself waits
/// for rank 1: that one is named.
void check_chain(Communicator& world, Device& device) {
  constexpr int kFirst = 2;
  world.set_wait_limits({.warning = 0ms, .timeout = world.rank() == kFirst ? 1s : 60s});
  if (world.rank() == kStuck) return stop_coming("stopped");
  const std::string message = error_of([&] { gather(world, device); });
  expect(message.find("[rank 2] all_gather(h.3), step 12: waiting for 1 s for rank 1 (on host ") !=
             std::string::npos,
         message);
  std::fprintf(stderr, "%s\n", message.c_str());
  if (world.rank() != 0) {
    for (;;) pause();  // the first rank ends the job
  }
  fail("as it should be");
}

/// A mesh of 2 x 2: rank 2, whose patience is over, waits for rank 0 in its data group, and rank 0
/// for rank 1 in the tensor group of these two: rank 1 is named, which no group of rank 2 has.
void check_mesh(Communicator& world, Device& device) {
  constexpr int kFirst = 2;
  const auto tensor = world.split(world.rank() / 2, world.rank());
  const auto data = world.split(world.rank() % 2, world.rank());
  world.set_wait_limits({.warning = 0ms, .timeout = world.rank() == kFirst ? 1s : 60s});
  if (world.rank() == kStuck) return stop_coming("stopped");
  const std::string message =
      error_of([&] { gather(world.rank() == 0 ? *tensor : *data, device); });
  expect(message.starts_with("[rank 2] all_gather(h.3), step 12: waiting for 1 s for rank 1 ("),
         message);
  std::fprintf(stderr, "%s\n", message.c_str());
  fail("as it should be");
}

void run(int* argc, char*** argv) {
  const std::string which = (*argv)[1];
  const mpi::Options options = options_of((*argv)[2]);
  const auto world = mpi::world(argc, argv, options);
  const auto device = cpu::open();
  world->set_step(12);
  if (world->rank() == kStuck) world->store().set("pid", std::to_string(getpid()));
  world->barrier(device->communication(), {"together"});
  device->communication().synchronize();
  if (which == "slow") return check_slow(*world, *device, options);
  if (which == "chain") return check_chain(*world, *device);
  if (which == "mesh") return check_mesh(*world, *device);
  check_stuck(*world, *device, options, which);
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) { return zero::test::mpi_program(argc, argv, zero::test::run); }
