// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The generic body under mpirun: mpi_body [--largest-message BYTES] SIZE...
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "collectives/backends.h"
#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"

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
}

}  // namespace

int main(int argc, char** argv) {
  zero::mpi::Options options;
  std::vector<std::int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--largest-message") {
      options.largest_message = std::atoll(argv[++i]);
    } else {
      sizes.push_back(std::atoll(argv[i]));
    }
  }
  try {
    const auto world = zero::mpi::world(&argc, &argv, options);
    run(*world, sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    zero::mpi::abort(1);
  }
  return 0;
}
