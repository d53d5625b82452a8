// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Messages move while their sender waits in shared memory. Ranks 0 and 1 are on one host, rank 2 on
// another. Rank 0 sends more to rank 2 than a connection takes, so that its MPI keeps the rest, and
// then waits in shared memory for rank 1, which waits for rank 2, which waits for that rest.
#include <cstdio>

#include "collectives/backends.h"
#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"

namespace zero::test {
namespace {

void run(int* argc, char*** argv) {
  const auto world = mpi::world(argc, argv, {.hosts = {0, 0, 1}});
  const int rank = world->rank();
  const auto neighbours = world->split(rank == 2 ? -1 : 0, rank);
  const auto sender = world->split(rank == 1 ? -1 : 0, rank);
  const auto chain = world->split(rank == 0 ? -1 : 0, rank);
  const auto device = cpu::open();
  Stream& stream = device->communication();
  if (neighbours) {
    expect(neighbours->transport() == "shared memory inside the host", "they share memory");
  }
  std::vector<float> values(std::size_t{16} << 20U, rank == 0 ? 3.0F : 0.0F);
  if (sender) {
    sender->broadcast(View::of(std::span(values)), 0, stream, {"much"});
    stream.synchronize();
    expect(values.front() == 3 && values.back() == 3, "all has come");
  }
  if (chain) {
    chain->barrier(stream, {"chain"});
    stream.synchronize();
  }
  if (neighbours) {
    neighbours->barrier(stream, {"neighbours"});
    stream.synchronize();
  }
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) {
  try {
    zero::test::run(&argc, &argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    zero::mpi::abort(3);
  }
  return 0;
}
