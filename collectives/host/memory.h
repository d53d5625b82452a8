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

/// Which pages of a stretch of memory count as resident: bits, one per `unit` bytes.
class Pages {
 public:
  explicit Pages(std::int64_t unit) : unit_(unit) {}
  /// Counts bytes [begin, end) of the stretch; returns how many bytes were not counted before.
  std::int64_t add(std::int64_t begin, std::int64_t end);
  /// The bytes between which all counted pages lie; afterwards none counts.
  std::pair<std::int64_t, std::int64_t> clear();

 private:
  std::int64_t unit_;
  std::vector<bool> counted_;  // up to the farthest that ever was
  std::size_t first_ = 0;      // all that are counted lie in [first_, end_)
  std::size_t end_ = 0;
};

/// Another process's Region as this one sees it: mapped, and which of its pages count as resident
/// here.
class Peer {
 public:
  /// What the system maps around a page of the usual size that was touched.
  static constexpr std::int64_t kFaultedPages = std::int64_t{64} << 10;

  /// Maps what `invitation` describes. Throws zero::Error with the reason where that is refused.
  explicit Peer(std::string_view invitation);

  /// Bytes of the peer's region.
  std::int64_t capacity() const { return span_.bytes(); }
  const Process& process() const { return watch_.process(); }
  bool ended() const { return watch_.ended(); }

 private:
  friend class Memory;

  explicit Peer(const Invitation& invitation);

  Watch watch_;
  Span span_;
  Pages large_{kHugePage};      // of the span's first half, from its start
  Pages small_{kFaultedPages};  // of the other half, from its end
};

/// The memory of this process that peers may reach, and theirs that it reaches. Peers open it
/// through /proc/ID/fd, which the same user may, so nothing has a name and nothing is left behind.
/// What has been touched of peers' pages would count as resident memory of this process too: it is
/// given back before it grows beyond a budget. Thread-safe; one per process is enough.
class Memory {
 public:
  /// Bytes of peers' pages that stay mapped at most, beyond what one call of reach() has asked for.
  static constexpr std::int64_t kResident = std::int64_t{4} << 20;

  /// For `ranks` processes on this host. Throws zero::Error with the system's reason.
  explicit Memory(int ranks);

  Region& region() { return region_; }
  /// What a peer needs to map this memory: one line of text.
  std::string invitation() const;
  /// The peer behind an invitation; mapped once. Throws zero::Error with the reason.
  std::shared_ptr<Peer> meet(const std::string& invitation);

  /// `bytes` of a peer's region at `offset`, there until the peer frees them. Throws zero::Error
  /// unless they all lie in it.
  std::byte* reach(Peer& peer, std::int64_t offset, std::int64_t bytes);
  /// Gives pages of peers back where more than kResident of them are mapped. No process loses
  /// access.
  void relieve();

 private:
  Region region_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<Peer>>> peers_;  // by invitation
  std::int64_t resident_ = 0;                                         // bytes
};

}  // namespace zero::host
