// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/ranks.h"

#include <thread>

#include "collectives/stores.h"
#include "tests/errors.h"

namespace zero::test {

std::vector<std::string> store_ranks(int ranks, const std::function<void(const StoreRank&)>& body) {
  fake_nccl::reset();
  InProcessStore store;
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        std::string& end = ends[static_cast<std::size_t>(rank)];
        try {
          end = error_of([&] { body({store, rank, ranks}); });
        } catch (const std::exception& error) {
          end = error.what();
          store.close(fmt::format("rank {} is gone", rank));
        }
      });
    }
  }
  return ends;
}

std::vector<std::string> nccl_ranks(int ranks, const NcclBody& body, const nccl::Options& options) {
  return store_ranks(ranks, [&](const StoreRank& self) {
    const auto device = cpu::open();
    const auto communicator = nccl::world(self, *device, options);
    body(*communicator, *device);
    device->communication().synchronize();
  });
}

}  // namespace zero::test
