// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What goes wrong under mpirun, one case a run: mpi_failures CASE
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) std::fprintf(stderr, "\"%s\" does not contain \"%s\"\n", text.c_str(), part.c_str());
  return found;
}

void checks(int* argc, char*** argv) {
  auto world = mpi::world(argc, argv);
  expect(mpi::available() && world->backend() == BackendKind::mpi, "mpirun gives MPI ranks");
  expect(world->local_size() == world->size() && world->local_rank() == world->rank(),
         "one host holds all ranks");
  const auto second = mpi::world(argc, argv);
  expect(second->size() == world->size(), "a second world shares the session");
  expect(contains(error_of([] { mpi::check_mpi(MPI_ERR_ROOT); }), "MPI error "), "check_mpi");
  expect(contains(error_of([] { mpi::check_mpi(MPI_ERR_ROOT); }), "mpi_failures.cpp:"), "where");
  expect(contains(error_of([] { mpi::check_thread_level(MPI_THREAD_SERIALIZED); }),
                  "expected MPI_THREAD_MULTIPLE"),
         "the thread level is checked");
  expect(contains(error_of([&] {
                    static_cast<void>(
                        mpi::world(argc, argv, {.largest_message = std::int64_t{1} << 30}));
                  }),
                  "largest message of 1073741824 bytes; expected 1 to 1073741823"),
         "the message limit is checked");
  expect(contains(error_of([&] { static_cast<void>(mpi::world(argc, argv, {.hosts = {0}})); }),
                  fmt::format("imitated hosts of 1 ranks; expected one for each of the {} ranks of "
                              "the world",
                              world->size())),
         "imitated hosts are counted");
}

void after_the_end(int* argc, char*** argv) {
  mpi::world(argc, argv).reset();
  expect(contains(error_of([&] { static_cast<void>(mpi::world(argc, argv)); }),
                  "MPI has been finalised and cannot start again"),
         "MPI starts once");
}

// The last communicator goes while a collective is queued: MPI ends only after that collective.
void queued_at_the_end(int* argc, char*** argv) {
  using namespace std::chrono_literals;
  const auto device = cpu::open();
  auto world = mpi::world(argc, argv);
  const int ranks = world->size();
  std::vector<float> values(1000, 1.0F);
  device->communication().submit("slow work", [] { std::this_thread::sleep_for(300ms); });
  world->all_reduce(View::of(std::span(values)), ReduceOp::sum, device->communication(), {"late"});
  world.reset();
  device->communication().synchronize();
  expect(std::ranges::all_of(values, [&](float v) { return v == static_cast<float>(ranks); }),
         "queued work ends with its values");
}

// The caller initialises MPI: nobody else finalises it.
void callers_mpi(int* argc, char*** argv) {
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  const auto device = cpu::open();
  check_store({*mpi::world(argc, argv), *device});
  int finalised = 1;
  MPI_Finalized(&finalised);
  expect(finalised == 0, "the caller's MPI stays");
  check_everything(*mpi::world(argc, argv), *device, 100);
  MPI_Finalize();
}

void single_threaded(int* argc, char*** argv) {
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &provided);
  const std::string message = error_of([&] { static_cast<void>(mpi::world(argc, argv)); });
  expect(provided == MPI_THREAD_MULTIPLE || contains(message, "this MPI gives thread level"),
         "a low thread level is refused");
  MPI_Finalize();
}

// Rank 1 believes in another layout.
void lengths(int* argc, char*** argv, const mpi::Options& options) {
  const auto world = mpi::world(argc, argv, options);
  const auto device = cpu::open();
  std::vector<float> values(40);
  const std::int64_t count = world->rank() == 1 ? 12 : 10;
  const Slices full{.buffer = View::of(std::span(values)), .ranges = {{0, count}, {20, count}}};
  const std::string message = error_of([&] {
    world->all_gather(full.of(world->rank()), full, device->communication(), {"h.0"});
    device->communication().synchronize();
  });
  expect(contains(message,
                  fmt::format("[rank {}] all_gather(h.0): {} elements in slice 0 met {} of rank {}",
                              world->rank(), count, 22 - count, 1 - world->rank())),
         "lengths are compared");
}

// Rank 1 expects nothing from rank 0, which sends it ten elements.
void pair_lengths(int* argc, char*** argv) {
  const auto world = mpi::world(argc, argv, {.host_memory = mpi::Options::HostMemory::unused});
  const auto device = cpu::open();
  std::vector<float> values(80);
  const Slices send = Slices::even(View::of(std::span(values)).slice(0, 20), 2);
  Slices receive = Slices::even(View::of(std::span(values)).slice(20, 20), 2);
  if (world->rank() == 1) receive.ranges[0].count = 0;
  const std::string message = error_of([&] {
    world->all_to_all(send, receive, device->communication(), {"tokens"});
    device->communication().synchronize();
  });
  expect(contains(message, world->rank() == 0
                               ? "[rank 0] all_to_all(tokens): rank 1 expects 0 elements, send "
                                 "slice 1 has 10"
                               : "[rank 1] all_to_all(tokens): rank 0 sends 10 elements, expected "
                                 "receive slice 0's 0"),
         "pairs are compared");
}

// Two hosts of two ranks each.
mpi::Options two_hosts() { return {.hosts = {0, 0, 1, 1}}; }

// The second host is at another unit: its leader and the first one's name both, their peers pass it
// on.
void hosts_stray(int* argc, char*** argv) {
  const auto world = mpi::world(argc, argv, two_hosts());
  const auto device = cpu::open();
  const int rank = world->rank();
  const int leader = rank / 2 * 2;
  std::vector<float> values(80);
  const Slices full = Slices::even(View::of(std::span(values)), 4);
  const std::string message = error_of([&] {
    world->all_gather(full.of(rank), full, device->communication(), {fmt::format("h.{}", leader)});
    device->communication().synchronize();
  });
  const auto found = [](int one) {
    return fmt::format(
        "[rank {0}] all_gather(h.{0}) met all_gather(h.{1}) of rank {1}: one of "
        "them left a call out or took another branch",
        one, 2 - one);
  };
  const std::string passed_on =
      fmt::format("[rank {}] all_gather(h.{}): the group has failed: ", rank, leader);
  const bool finds_it = message == found(leader) && rank == leader;
  const bool hears_it = message == passed_on + found(0) || message == passed_on + found(2);
  expect(finds_it || hears_it, fmt::format("hosts compare their calls: {}", message));
}

// Rank 1 fails while the others wait for it: the job must end.
void one_throws(int* argc, char*** argv) {
  const auto world = mpi::world(argc, argv);
  if (world->rank() == 1) fail("[rank 1] out of patience");
  const auto device = cpu::open();
  world->barrier(device->communication(), {"never"});
  device->communication().synchronize();
}

// Rank 1 is killed while the others wait for it: the job ends.
void one_dies(int* argc, char*** argv, const mpi::Options& options) {
  const auto world = mpi::world(argc, argv, options);
  const auto device = cpu::open();
  const Buffer buffer = world->allocate(*device, 1 << 20, DType::fp32, MemoryClass::other, "test");
  if (world->rank() == 1) std::raise(SIGKILL);
  world->all_reduce(buffer.view(), ReduceOp::sum, device->communication(), {"never"});
  device->communication().synchronize();
}

void run(const std::string& which, int* argc, char*** argv) {
  if (which == "checks") return checks(argc, argv);
  if (which == "after_the_end") return after_the_end(argc, argv);
  if (which == "queued_at_the_end") return queued_at_the_end(argc, argv);
  if (which == "callers_mpi") return callers_mpi(argc, argv);
  if (which == "single_threaded") return single_threaded(argc, argv);
  if (which == "lengths") return lengths(argc, argv, {});
  if (which == "message_lengths") {
    return lengths(argc, argv, {.host_memory = mpi::Options::HostMemory::unused});
  }
  if (which == "pair_lengths") return pair_lengths(argc, argv);
  if (which == "one_dies") return one_dies(argc, argv, {});
  if (which == "one_of_a_host_dies") return one_dies(argc, argv, two_hosts());
  if (which == "hosts_stray") return hosts_stray(argc, argv);
  if (which == "one_throws") return one_throws(argc, argv);
  fail("unknown case {}", which);
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) {
  try {
    zero::test::run(argc > 1 ? argv[1] : "", &argc, &argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    zero::mpi::abort(3);
  }
  return 0;
}
