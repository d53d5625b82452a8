// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/error.h"
#include "collectives/communicator.h"

namespace zero {

/// A failure that every rank knows of and throws alike, so that all can end in good order and one
/// can report it.
class AgreedError : public Error {
 public:
  explicit AgreedError(const std::string& message) : Error(message) {}
};

/// Runs `body`, which makes no collective call of its own that could be left half-way, on every
/// rank. Where it throws on any, every rank throws one AgreedError with the message of the lowest
/// such rank, which is named unless all failed alike. Collective.
void agree(Communicator& communicator, Device& device, std::string_view purpose,
           const std::function<void()>& body);

/// Throws AgreedError on every rank, naming the first rank and key that differ from rank 0's.
/// Collective.
void require_same(Communicator& communicator, Device& device,
                  const std::map<std::string, std::string>& values);

}  // namespace zero
