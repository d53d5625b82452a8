// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/host/transport.h"

namespace zero::test {

using host::HostTransport;

/// Ranks of a host as threads of one process, which tell each other lines of text. Each has a
/// Memory of its own and maps the others', as processes do.
class HostRanks {
 public:
  using Body = std::function<void(HostTransport&, host::Memory&, int rank)>;

  explicit HostRanks(int ranks)
      : lines_(static_cast<std::size_t>(ranks)), memories_(lines_.size()), all_(ranks) {
    for (auto& memory : memories_) memory = std::make_shared<host::Memory>(ranks);
  }

  /// What people call the ranks.
  void call(std::vector<int> names) { names_ = std::move(names); }

  /// Rank `rank` has no memory to share, for `reason`.
  void refuse(int rank, std::string reason) {
    memories_[static_cast<std::size_t>(rank)] = nullptr;
    reason_ = std::move(reason);
  }

  /// What rank `rank` tells lines through, within its body too.
  HostTransport::AllGatherTexts all_gather_texts_of(int rank) {
    return [this, rank](const std::string& mine) {
      lines_[at(rank)] = mine;
      all_.arrive_and_wait();
      const std::vector<std::string> all = lines_;
      all_.arrive_and_wait();
      return all;
    };
  }

  /// Joins on every rank; gives each rank's refusal, or the error that its body ended with, or
  /// "no error".
  std::vector<std::string> run(const Body& body) {
    std::vector<std::string> ends(lines_.size());
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < size(); ++rank) {
        threads.emplace_back([&, rank] { ends[at(rank)] = run_rank(rank, body); });
      }
    }
    return ends;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  int size() const { return static_cast<int>(lines_.size()); }

  std::string run_rank(int rank, const Body& body) {
    const auto& memory = memories_[at(rank)];
    try {
      const auto joined =
          HostTransport::join(memory, reason_, {rank, size(), names_}, all_gather_texts_of(rank));
      if (!joined.transport) return joined.refusal;
      body(*joined.transport, *memory, rank);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::vector<std::string> lines_;
  std::vector<std::shared_ptr<host::Memory>> memories_;
  std::string reason_;
  std::vector<int> names_;
  std::barrier<> all_;
};

}  // namespace zero::test
