// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Messages move while their sender waits in shared memory. Ranks 0 and 1 are on one host, rank 2 on
// another. Rank 0 gives a value to a store, which is sent once its receiver asks, and waits in
// shared memory for rank 1, which waits for rank 2, which waits for that value.
#include <chrono>
#include <string>

#include "collectives/backends.h"
#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"
#include "tests/collectives/mpi_program.h"

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
    expect(neighbours->description() == "shared memory inside the host", "they share memory");
  }
  const std::string value(std::size_t{4} << 20U, 'x');
  if (rank == 0) sender->store().set("value", value);
  if (rank == 2) {
    expect(sender->store().get("value", std::chrono::hours(1)) == value, "the value has come");
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

int main(int argc, char** argv) { return zero::test::mpi_program(argc, argv, zero::test::run); }
