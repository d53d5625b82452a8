// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// A host and the ranks it takes: its GPUs, or as many as its cores should share.
struct RankHost {
  std::string name;
  int ranks = 1;
};

/// The hosts of "a:8,b:8". Throws zero::Error naming `place` and the part that is none.
std::vector<RankHost> hosts_of_list(std::string_view text, std::string_view place);
/// The hosts of a file in the forms of OpenMPI ("a slots=8", also with max_slots) and MPICH
/// ("a:8"), a line each; # begins a comment. Throws zero::Error naming file and line.
std::vector<RankHost> hosts_of_file(const std::string& path);

int ranks_of(const std::vector<RankHost>& hosts);
/// The hosts of a world of `world` ranks: each is filled before the next. Throws zero::Error if
/// they take fewer.
std::vector<RankHost> hosts_of_world(const std::vector<RankHost>& hosts, int world);
/// "a:8,b:8"
std::string hosts_text(const std::vector<RankHost>& hosts);

}  // namespace zero
