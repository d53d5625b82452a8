// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "collectives/host_values.h"

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

bool of_group(std::string_view line) { return line.starts_with(kPerGroupMark); }
std::string_view shown(std::string_view line) { return line.substr(of_group(line) ? 1 : 0); }

/// The index of the first line that must be equal but differs; the number of lines if there is
/// none. Compares either all lines, or only those without kPerGroupMark.
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

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "unknown error" : error.what();
  } catch (...) {
    return "failed with an exception of unknown type";
  }
}

void agree(Communicator& communicator, Device& device, std::string_view purpose,
           const std::function<void()>& work) {
  std::exception_ptr own;
  const std::string failure = failure_of([&] {
    try {
      work();
    } catch (const AgreedError&) {
      own = std::current_exception();
      throw;
    }
  });
  const std::vector<std::string> all = all_gather_texts(communicator, device, failure, purpose);
  const auto first = std::ranges::find_if(all, [](const auto& text) { return !text.empty(); });
  if (first == all.end()) return;
  const bool alike = std::ranges::count(all, *first) == std::ssize(all);
  if (alike && own) std::rethrow_exception(own);
  throw AgreedError(alike || first->starts_with("[rank ")
                        ? *first
                        : fmt::format("[rank {}] {}", first - all.begin(), *first));
}

void require_agreement(Communicator& communicator, Device& device, std::string_view purpose,
                       std::string_view lines, int groups) {
  if (!device.has_memory()) return plan_host_values(device);  // a plan has no peers to differ from
  const std::vector<std::string> all = all_gather_texts(communicator, device, lines, purpose);
  const auto compare = [&](std::size_t rank, std::size_t with, bool same_group) {
    if (all[rank] == all[with]) return;
    const std::vector<std::string_view> mine = lines_of(all[rank]);
    const std::vector<std::string_view> other = lines_of(all[with]);
    const std::size_t at = first_difference(mine, other, same_group);
    if (at == std::max(mine.size(), other.size())) return;
    throw AgreedError(
        fmt::format("{}: rank {} has \"{}\", rank {} has \"{}\"; all ranks must be started alike",
                    purpose, rank, shown(line(mine, at)), with, shown(line(other, at))));
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::size_t peer = rank % static_cast<std::size_t>(groups);
    compare(rank, 0, peer == 0);
    if (peer != 0 && peer != rank) compare(rank, peer, true);
  }
}

void require_agreement(Communicator& communicator, Device& device,
                       const std::map<std::string, std::string>& values) {
  std::string lines;
  for (const auto& [key, value] : values) lines += fmt::format("{}: {}\n", key, value);
  require_agreement(communicator, device, "configuration and data", lines);
}

}  // namespace zero
