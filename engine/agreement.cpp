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

std::string_view line(const std::vector<std::string_view>& lines, std::size_t i) {
  return i < lines.size() ? lines[i] : std::string_view("nothing more");
}

bool of_group(std::string_view line) { return line.starts_with(kOfGroup); }
std::string_view shown(std::string_view line) { return line.substr(of_group(line) ? 1 : 0); }

/// The first line that differs where it must not; the number of lines where there is none. Lines
/// are either all compared, or only those that are no group's.
std::size_t first_difference(const std::vector<std::string_view>& one,
                             const std::vector<std::string_view>& other, bool same_group) {
  const std::size_t count = std::max(one.size(), other.size());
  const auto may_differ = [&](std::size_t i) {
    return !same_group && of_group(line(one, i)) && of_group(line(other, i));
  };
  std::size_t i = 0;
  while (i < count && (line(one, i) == line(other, i) || may_differ(i))) ++i;
  return i;
}

}  // namespace

void require_agreement(Communicator& communicator, Device& device, std::string_view operation,
                       std::string_view lines, int groups) {
  const std::vector<std::string> all = exchange(communicator, device, lines, operation);
  const auto compare = [&](std::size_t rank, std::size_t with, bool same_group) {
    if (all[rank] == all[with]) return;
    const std::vector<std::string_view> mine = lines_of(all[rank]);
    const std::vector<std::string_view> other = lines_of(all[with]);
    const std::size_t at = first_difference(mine, other, same_group);
    ZERO_CHECK(at == std::max(mine.size(), other.size()),
               "[rank {}] {}: rank {} has \"{}\", rank {} has \"{}\"; all ranks must be started "
               "alike",
               communicator.rank(), operation, rank, shown(line(mine, at)), with,
               shown(line(other, at)));
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::size_t peer = rank % static_cast<std::size_t>(groups);
    compare(rank, 0, peer == 0);
    if (peer != 0 && peer != rank) compare(rank, peer, true);
  }
}

}  // namespace zero
