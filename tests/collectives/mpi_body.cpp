// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The generic body under mpirun: mpi_body [--resident] [--messages] [--largest-message BYTES]
// [--hosts LETTERS] [--apart] SIZE...
// LETTERS: of each rank, the host that it is to be on.
// --apart: each rank has been started in a user namespace of its own.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "collectives/backends.h"
#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"
#include "tests/support/test_device.h"

namespace {

void run(zero::Communicator& world, const std::vector<std::int64_t>& sizes) {
  const auto device = zero::cpu::open();
  const zero::test::Rank rank(world, *device);
  for (const std::int64_t total : sizes) zero::test::check_everything(world, *device, total);
  zero::test::check_buckets(rank);
  zero::test::check_split(rank);
  zero::test::check_store(rank);
  zero::test::check_exchange(world, *device);
  const auto seeded = zero::testing::open({.policy = zero::testing::StreamOrder::Policy::seeded,
                                           .seed = static_cast<std::uint64_t>(world.rank())});
  zero::test::check_everything(world, *seeded, 1000);
  // The test device's memory is its own: no rank's values can be read in place, or half the ranks'.
  constexpr std::int64_t kSeveralParts = 300000;
  zero::test::check_everything(world, *seeded, kSeveralParts);
  zero::test::check_everything(world, world.rank() % 2 == 0 ? *device : *seeded, kSeveralParts);
}

/// Largest resident memory of this process so far, in bytes.
std::int64_t largest_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * std::int64_t{1024};
}

// What is read of peers' memory must not add up in this rank's own.
void check_resident(zero::Communicator& world) {
  constexpr std::int64_t kCount = std::int64_t{48} << 20;
  constexpr std::int64_t kGrowth = std::int64_t{40} << 20;
  const auto device = zero::cpu::open();
  const zero::test::Rank rank(world, *device);
  const zero::Buffer buffer = rank.allocate(kCount, zero::DType::bf16);
  const auto full = zero::Slices::even(buffer.view(), world.size());
  const zero::View own = full.of(world.rank());
  const zero::Buffer workspace =
      rank.allocate(world.reduce_scatter_workspace(full), zero::DType::bf16);
  device->kernels().zero(device->compute(), buffer.view());
  rank.communicate([&](zero::Stream& stream) { world.barrier(stream, {"warm"}); });
  rank.read({});
  const std::int64_t before = largest_resident();
  for (int i = 0; i < 3; ++i) {
    rank.communicate([&](zero::Stream& stream) {
      world.all_gather(own, full, stream, {"all"});
      world.reduce_scatter(full, {{}, own, nullptr}, workspace.view(), stream, {"all"});
      world.all_reduce(buffer.view().reinterpret(zero::DType::fp32, kCount / 2),
                       zero::ReduceOp::sum, stream, {"all"});
    });
    rank.read({});
  }
  const std::int64_t growth = largest_resident() - before;
  zero::test::expect(
      growth <= kGrowth,
      fmt::format("resident memory grew by {} bytes, expected at most {}", growth, kGrowth));
}

// Values beyond the caches, which the ranks go through in step.
void check_large(zero::Communicator& world) {
  constexpr std::int64_t kCount = 40'000'001;
  const auto device = zero::cpu::open();
  const zero::test::Rank rank(world, *device);
  const auto cut = zero::test::plan(zero::test::Cut::uneven, kCount, world.size());
  const zero::Buffer buffer = rank.allocate(cut.buffer, zero::DType::u8);
  const zero::Slices full{.buffer = buffer.view(), .ranges = cut.ranges};
  const auto expect_value = [](zero::View view, int value, const std::string& what) {
    const auto bytes = view.as<std::uint8_t>();
    zero::test::expect(std::ranges::all_of(bytes, [&](auto byte) { return byte == value; }), what);
  };
  device->kernels().poison(device->compute(), full.buffer);
  std::ranges::fill(full.of(world.rank()).as<std::uint8_t>(), world.rank());
  rank.communicate([&](zero::Stream& stream) {
    world.all_gather(full.of(world.rank()), full, stream, {"large"});
  });
  rank.read({});
  for (int r = 0; r < world.size(); ++r) expect_value(full.of(r), r, "a large all_gather");
  std::ranges::fill(full.buffer.as<std::uint8_t>(), world.rank() + 10);
  rank.communicate(
      [&](zero::Stream& stream) { world.broadcast(full.buffer, 1, stream, {"large"}); });
  rank.read({});
  expect_value(full.buffer, 11, "a large broadcast");
}

// Memory that was freed and allocated again, and communicators that come and go, leave no trace.
void check_churn(zero::Communicator& world) {
  const auto device = zero::cpu::open();
  for (int i = 0; i < 20; ++i) {
    const auto group = world.split(i % 3 == 0 ? world.rank() / 2 : 0, world.rank());
    const zero::test::Rank rank(*group, *device);
    const zero::Buffer buffer =
        rank.allocate((i % 4 + 1) * 10'000 * group->size(), zero::DType::u8);
    const auto full = zero::Slices::even(buffer.view(), group->size());
    const auto value = [i](int r) { return static_cast<std::uint8_t>(i * 16 + r); };
    rank.fill_bytes(full.of(group->rank()), [&](std::int64_t) { return value(group->rank()); });
    rank.communicate([&](zero::Stream& stream) {
      group->all_gather(full.of(group->rank()), full, stream, {"churn"});
    });
    const auto bytes = rank.read_bytes(full.buffer);
    for (std::size_t at = 0; at < bytes.size(); at += 997) {
      const auto owner = static_cast<std::int64_t>(at) / full.ranges.front().count;
      zero::test::expect(bytes[at] == value(static_cast<int>(owner)), "a stale byte");
    }
  }
}

bool apart(std::string_view description) {
  return description.starts_with("MPI messages: rank ") &&
         description.find(" runs in another user namespace (a container for each rank)") !=
             std::string_view::npos;
}

std::string expected_description(const zero::mpi::Options& options) {
  if (options.host_memory == zero::mpi::Options::HostMemory::unused) {
    return "MPI messages: they were asked for";
  }
  const std::size_t hosts = std::set(options.hosts.begin(), options.hosts.end()).size();
  if (hosts < 2) return "shared memory inside the host";
  return hosts == options.hosts.size()
             ? "MPI messages: the ranks are on several hosts"
             : fmt::format("shared memory inside {} hosts, MPI messages between them", hosts);
}

}  // namespace

int main(int argc, char** argv) {
  zero::mpi::Options options;
  std::vector<std::int64_t> sizes;
  bool resident = false;
  bool separate = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--resident") {
      resident = true;
    } else if (std::string_view(argv[i]) == "--apart") {
      separate = true;
    } else if (std::string_view(argv[i]) == "--messages") {
      options.host_memory = zero::mpi::Options::HostMemory::unused;
    } else if (std::string_view(argv[i]) == "--hosts") {
      for (const char host : std::string_view(argv[++i])) options.hosts.push_back(host);
    } else if (std::string_view(argv[i]) == "--largest-message") {
      options.largest_message = std::atoll(argv[++i]);
    } else {
      sizes.push_back(std::atoll(argv[i]));
    }
  }
  try {
    const auto world = zero::mpi::world(&argc, &argv, options);
    zero::test::expect(separate ? apart(world->description())
                                : world->description() == expected_description(options),
                       "values travel as was asked for");
    if (resident) {
      check_resident(*world);
      check_large(*world);
      check_churn(*world);
    } else if (separate) {
      check_large(*world);
      run(*world, sizes);
    } else {
      run(*world, sizes);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    zero::mpi::abort(1);
  }
  return 0;
}
