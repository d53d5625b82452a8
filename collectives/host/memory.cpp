// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include "base/error.h"

namespace zero::host {
namespace {

// What an invitation says, in this order.
struct Directions {
  Process process;
  std::string space;
  int descriptor = -1;
  std::int64_t capacity = 0;
  std::uint64_t token = 0;
};

Directions directions_of(std::string_view invitation) {
  std::istringstream text{std::string(invitation)};
  Directions to;
  text >> to.process.id >> to.process.start >> to.space >> to.descriptor >> to.capacity >> to.token;
  ZERO_CHECK(!text.fail(), "\"{}\" is no invitation to a process's memory", invitation);
  return to;
}

Span mapped(const Directions& to) {
  ZERO_CHECK(to.space == process_namespace(), "process {} runs in another PID namespace",
             to.process.id);
  const std::string path = fmt::format("/proc/{}/fd/{}", to.process.id, to.descriptor);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ZERO_CHECK(file.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  std::uint64_t token = 0;
  const ssize_t length = pread(file.get(), &token, sizeof token, 0);
  ZERO_CHECK(length == sizeof token && token == to.token, "{} is another process's file", path);
  return {file.get(), to.capacity, PROT_READ};
}

std::uint64_t random_token() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// Address space is cheap, but ends: a region has room for twice what the machine has, for what
// freed ranges leave between each other, unless many ranks share the space.
std::int64_t capacity_for(int ranks) {
  constexpr std::int64_t kSpace = std::int64_t{32} << 40;
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(2 * memory, kSpace / ranks) / kHugePage * kHugePage;
}

}  // namespace

Peer::Peer(std::string_view invitation)
    : process_(directions_of(invitation).process),
      span_(mapped(directions_of(invitation))),
      resident_(static_cast<std::size_t>(span_.bytes() / kHugePage)) {}

Memory::Memory(int ranks) : token_(random_token()), region_(capacity_for(ranks)) {
  std::memcpy(region_.allocate(kPage), &token_, sizeof token_);
}

std::string Memory::invitation() const {
  const Process self = this_process();
  return fmt::format("{} {} {} {} {} {}", self.id, self.start, process_namespace(),
                     region_.descriptor(), region_.capacity(), token_);
}

std::shared_ptr<Peer> Memory::meet(const std::string& invitation) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [known, peer] : peers_) {
    if (known == invitation) return peer;
  }
  return peers_.emplace_back(invitation, std::make_shared<Peer>(invitation)).second;
}

const std::byte* Memory::read(Peer& peer, std::int64_t offset, std::int64_t bytes) {
  const std::byte* const data = peer.span_.data() + offset;
  const std::int64_t first = offset / kHugePage;
  const std::int64_t last = (offset + bytes - 1) / kHugePage;
  const std::scoped_lock lock(mutex_);
  for (std::int64_t page = first; page <= last; ++page) {
    auto counted = peer.resident_[static_cast<std::size_t>(page)];
    if (!counted) ++resident_;
    counted = true;
  }
  return data;
}

void Memory::relieve() {
  const std::scoped_lock lock(mutex_);
  if (resident_ * kHugePage <= kResident) return;
  for (const auto& [invitation, peer] : peers_) {
    auto& pages = peer->resident_;
    const auto first = std::find(pages.begin(), pages.end(), true);
    if (first == pages.end()) continue;
    const auto end = std::find(pages.rbegin(), pages.rend(), true).base();
    madvise(peer->span_.data() + (first - pages.begin()) * kHugePage,
            static_cast<std::size_t>((end - first) * kHugePage), MADV_DONTNEED);
    std::fill(first, end, false);
  }
  resident_ = 0;
}

}  // namespace zero::host
