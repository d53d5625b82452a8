// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/host/process.h"
#include "collectives/host/region.h"

namespace zero::host {

/// Another process's Region as this one sees it: mapped for reading, and which of its pages count
/// as resident here.
class Peer {
 public:
  /// Maps what `invitation` describes. Throws zero::Error with the reason where that is refused.
  explicit Peer(std::string_view invitation);

  const Process& process() const { return process_; }

 private:
  friend class Memory;

  Process process_;
  Span span_;
  std::vector<bool> resident_;  // per huge page of the span
};

/// The memory of this process that peers may read, and theirs that it reads. Peers open it through
/// /proc/ID/fd, which the same user may, so nothing has a name and nothing is left behind. What has
/// been read of peers' pages would count as resident memory of this process too: it is given back
/// before it grows beyond a budget. Thread-safe; one per process is enough.
class Memory {
 public:
  /// Bytes of peers' pages that stay mapped at most, beyond the one read that is under way.
  static constexpr std::int64_t kResident = std::int64_t{4} << 20;

  /// For `ranks` processes on this host. Throws zero::Error with the system's reason.
  explicit Memory(int ranks);

  Region& region() { return region_; }
  /// What a peer needs to map this memory: one line of text.
  std::string invitation() const;
  /// The peer behind an invitation; mapped once. Throws zero::Error with the reason.
  std::shared_ptr<Peer> meet(const std::string& invitation);

  /// `bytes` of a peer's region at `offset`, readable until the peer frees them.
  const std::byte* read(Peer& peer, std::int64_t offset, std::int64_t bytes);
  /// Gives pages of peers back where more than kResident of them are mapped. Nobody loses access.
  void relieve();

 private:
  std::uint64_t token_;  // lies at the region's start: tells it from another file
  Region region_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<Peer>>> peers_;  // by invitation
  std::int64_t resident_ = 0;                                         // huge pages
};

}  // namespace zero::host
