// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/agreement.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "collectives/store.h"

namespace zero {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

void require_agreement(Communicator& communicator, Device& device, std::string_view operation,
                       std::string_view lines) {
  const std::vector<std::string> all = exchange(communicator, device, lines, operation);
  const std::vector<std::string_view> first = lines_of(all[0]);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::vector<std::string_view> other = lines_of(all[rank]);
    const auto at = [](const std::vector<std::string_view>& list, std::size_t i) {
      return i < list.size() ? list[i] : std::string_view("nothing more");
    };
    std::size_t i = 0;
    while (i < std::max(first.size(), other.size()) && at(first, i) == at(other, i)) ++i;
    fail("[rank {}] {}: rank {} has \"{}\", rank 0 has \"{}\"; all ranks must be started alike",
         communicator.rank(), operation, rank, at(other, i), at(first, i));
  }
}

}  // namespace zero
