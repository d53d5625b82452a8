// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"

namespace zero {
namespace {

constexpr int kMostRanksOfHost = 4096;
constexpr const char* kForms = "expected a name and its ranks: a:8, or in a file also a slots=8";

std::optional<int> ranks_in(std::string_view text) {
  return whole_number(text, 1, kMostRanksOfHost);
}

/// Whether it is safe in the command line of a launcher: no flag, no list, nothing of a shell.
bool is_host_name(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

void add_host(std::vector<RankHost>& hosts, std::string_view name, std::optional<int> ranks,
              std::string_view place, std::string_view found) {
  ZERO_CHECK(is_host_name(name) && ranks, "{}: found \"{}\", {}, from 1 to {}", place,
             printable_line(found, 80), kForms, kMostRanksOfHost);
  ZERO_CHECK(std::ranges::find(hosts, name, &RankHost::name) == hosts.end(),
             "{}: the host {} is named twice, expected each host once, with all its ranks", place,
             name);
  hosts.push_back({.name = std::string(name), .ranks = *ranks});
}

/// Adds the host of "a:8".
void add_with_colon(std::vector<RankHost>& hosts, std::string_view text, std::string_view place) {
  const std::size_t colon = text.find(':');
  const bool has = colon != std::string_view::npos;
  add_host(hosts, text.substr(0, colon), has ? ranks_in(text.substr(colon + 1)) : std::nullopt,
           place, text);
}

/// Adds the host of a line of a file, if it has one.
void add_line(std::vector<RankHost>& hosts, std::string line, const std::string& place) {
  line = line.substr(0, line.find('#'));
  std::istringstream words(line);
  std::string name;
  if (!(words >> name)) return;
  std::optional<int> ranks;
  bool known = true;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (key == "slots" && !ranks) {
      ranks = ranks_in(std::string_view(word).substr(std::min(equals, word.size() - 1) + 1));
    } else {
      known = known && (key == "max_slots" || key == "max-slots");
    }
  }
  line.erase(line.find_last_not_of(" \t\r\n\v\f") + 1);
  if (known && !ranks && line.find_first_of(" \t") == std::string::npos) {
    return add_with_colon(hosts, name, place);
  }
  add_host(hosts, known ? name : "", ranks, place, line);
}

}  // namespace

std::vector<RankHost> hosts_of_list(std::string_view text, std::string_view place) {
  std::vector<RankHost> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    add_with_colon(hosts, text.substr(begin, end - begin), place);
    begin = end + 1;
  }
  return hosts;
}

std::vector<RankHost> hosts_of_file(const std::string& path) {
  std::ifstream file(path);
  ZERO_CHECK(file.good(), "--hostfile {}: cannot be read: {}", path, std::strerror(errno));
  std::vector<RankHost> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    add_line(hosts, line, fmt::format("{}:{}", path, ++number));
  }
  ZERO_CHECK(!hosts.empty(), "--hostfile {}: names no host, {}", path, kForms);
  return hosts;
}

int ranks_of(const std::vector<RankHost>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const RankHost& host) { return sum + host.ranks; });
}

std::vector<RankHost> hosts_of_world(const std::vector<RankHost>& hosts, int world) {
  ZERO_CHECK(world <= ranks_of(hosts), "--worlds: found {}, expected at most the {} ranks of {}",
             world, ranks_of(hosts), hosts_text(hosts));
  std::vector<RankHost> used;
  for (const RankHost& host : hosts) {
    if (world == 0) break;
    used.push_back({.name = host.name, .ranks = std::min(host.ranks, world)});
    world -= used.back().ranks;
  }
  return used;
}

std::string hosts_text(const std::vector<RankHost>& hosts) {
  std::string text;
  for (const RankHost& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.ranks);
  }
  return text;
}

}  // namespace zero
