// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/identity.h"

#include "base/error.h"

namespace zero::store_wire {

Message introduction_of(const Identity& identity) {
  return {"iam", std::string(kVersion), std::to_string(identity.rank),
          std::to_string(identity.world), identity.job};
}

Identity introduced(const Message& message) {
  ZERO_CHECK(message.size() >= 2 && message[0] == "iam", "it does not say which rank it is");
  ZERO_CHECK(message[1] == kVersion && message.size() == 5,
             "rank 0 runs another version of the program, with {}; all ranks must run one",
             kVersion);
  const std::string& job = message[4];
  ZERO_CHECK(job.size() <= kMostJobBytes, "a job whose name has {} bytes, expected at most {}",
             job.size(), kMostJobBytes);
  const int world = static_cast<int>(number(message[3], 1, kMostRanks));
  return {.rank = static_cast<int>(number(message[2], 0, world - 1)), .world = world, .job = job};
}

std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most) {
  const auto value = whole_number(text, least, most);
  ZERO_CHECK(value.has_value(), "{} bytes that are no whole number from {} to {}", text.size(),
             least, most);
  return *value;
}

}  // namespace zero::store_wire
