// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "collectives/communicator.h"

namespace zero {

// Agreement of ranks on success or failure: agree() and require_agreement() are collective and
// block the host; each returns on every rank, or throws the same AgreedError on every rank.

/// A failure that every rank throws with the same message: all ranks can end in good order, and one
/// of them can report it.
class AgreedError : public Error {
 public:
  explicit AgreedError(const std::string& message) : Error(message) {}
};

/// Runs `work`; returns the message of its exception, or "" on success.
std::string failure_of(const std::function<void()>& work);

/// Runs `work`, which must not communicate, on every rank, and returns once every rank has run its
/// own: no rank goes on alone, and none waits for one that has thrown. If `work` fails on any rank,
/// throws the message of the lowest such rank, with that rank's number unless all failed alike; an
/// AgreedError of `work` with which all fail alike keeps its type.
void agree(Communicator& communicator, Device& device, std::string_view purpose,
           const std::function<void()>& work);

/// First character of a line that must be equal only on the ranks of one group.
inline constexpr char kPerGroupMark = '~';

/// Compares `lines` ("key: value" each, newline-terminated) of all ranks. If they differ, throws an
/// error that names the first rank that differs from rank 0, the first key that differs and both
/// values. Lines that begin with kPerGroupMark are compared with those of rank r % groups: every
/// `groups`-th rank belongs to one group.
void require_agreement(Communicator& communicator, Device& device, std::string_view purpose,
                       std::string_view lines, int groups = 1);

/// The same for the configuration and the data of a run, as keys and values.
void require_agreement(Communicator& communicator, Device& device,
                       const std::map<std::string, std::string>& values);

}  // namespace zero
