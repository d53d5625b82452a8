// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "tests/nccl/fake_nccl.h"

namespace zero::test {

/// Runs body(communicator, device) on `ranks` threads, each a rank of NCCL's; gives the message of
/// each one's zero::Error, or "no error". A body that throws anything else is a rank that is lost.
using NcclBody = std::function<void(Communicator&, Device&)>;
std::vector<std::string> nccl_ranks(int ranks, const NcclBody& body,
                                    const nccl::Options& options = {});

/// The same without a world: body(self) makes it.
std::vector<std::string> store_ranks(int ranks, const std::function<void(const StoreRank&)>& body);

}  // namespace zero::test
