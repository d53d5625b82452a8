// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "base/error.h"
#include "collectives/communicator.h"

namespace zero {

/// Thrown by a collective of a checked backend, on the rank that received other values than a peer
/// sent.
class ValuesChanged : public Error {
 public:
  using Error::Error;
};

/// A backend on the ranks of `communicator` that proves every collective: the checksum (XXH3, 64
/// bits) of what a rank sends is taken before the collective, travels beside it, and is compared
/// with that of what arrived. Values that a reduction sums arrive as slices first: their checksums
/// are compared, then they are summed by the fixed tree, so results have the bits of the backend
/// below. A difference fails the stream of the receiver with ValuesChanged, which names collective,
/// sender, receiver and their hosts (`host`: this rank's). The same for all splits.
///
/// For streams that work on host memory. Takes up to 4 MiB of host memory a group, or 64 elements
/// of each rank if that is more, beside the plan. Its own bytes count as no traffic. Collective, as
/// all its ranks must be checked or none.
std::shared_ptr<CollectiveBackend> checked_backend(const Communicator& communicator,
                                                   std::string_view host);

}  // namespace zero
