// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// NCCL on real GPUs, without MPI: nccl_cuda_ranks [RANKS]. Ranks are processes of this one, on the
// GPUs in turn; a rank for which there is none shares the first. Does what every
// communicator does; then the last rank dies, and the others must be out within 10 seconds.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "collectives/backends.h"
#include "launch/rendezvous/store/tcp_store.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

using Clock = std::chrono::steady_clock;

/// A communicator per way of summing; the exact one does all.
void check_all(Communicator& world, Device& device) {
  const Rank rank(world, device);
  for (const std::int64_t total : {0, 1, 3, 64, 10007, 1 << 20}) {
    check_everything(world, device, total);
  }
  check_buckets(rank);
  check_split(rank);
  check_store(rank);
  check_exchange(world, device);
}

void gather_until_an_error(Communicator& world, Device& device) {
  const Rank rank(world, device);
  const Buffer values = rank.allocate(std::int64_t{3} << 20, DType::fp32);
  const Slices full = Slices::even(values.view(), world.size());
  for (;;) {
    rank.communicate(
        [&](Stream& stream) { world.all_gather(full.of(world.rank()), full, stream, {"h.3"}); });
    device.compute().synchronize();
  }
}

/// The rank's own, or the first where there are too few.
std::unique_ptr<Device> open_gpu(int rank) {
  try {
    return cuda::open({.index = rank});
  } catch (const Error&) {
    return cuda::open({.index = 0});
  }
}

int run(int rank, int ranks, int port) {
  TcpStore store({.host = "127.0.0.1", .port = port, .rank = rank, .world = ranks});
  const auto device = open_gpu(rank);
  const auto world = nccl::world({store, rank, ranks}, *device, {.gpus = nccl::Gpus::shared});
  if (rank == 0) std::printf("%s\n", std::string(world->description()).c_str());
  check_all(*world, *device);
  if (rank == 0) std::printf("collectives: as the contract says\n");
  if (ranks == 1) return 0;
  if (rank == ranks - 1) ::_exit(0);
  const auto start = Clock::now();
  const std::string message = error_of([&] { gather_until_an_error(*world, *device); });
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count();
  std::printf("out after %d s: %s\n", static_cast<int>(seconds), message.c_str());
  std::fflush(stdout);
  const bool named = message.find("is gone") != std::string::npos &&
                     message.find("all_gather(h.3)") != std::string::npos;
  ::_exit(named && seconds < 10 ? 0 : 1);  // the library may be past an orderly end
}

int rank_of_its_own(int rank, int ranks, int port) {
  try {
    return run(rank, ranks, port);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) {
  const int ranks = argc > 1 && argv[1][0] != '-' ? std::atoi(argv[1]) : 2;
  const int port = 22000 + ::getpid() % 7000;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int status = zero::test::rank_of_its_own(rank, ranks, port);
      std::fflush(nullptr);
      ::_exit(status);
    }
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed += status != 0 ? 1 : 0;
  std::printf("%d of %d ranks failed\n", failed, ranks);
  return failed == 0 ? 0 : 1;
}
