// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zero::host {
namespace {

// Address space is cheap but finite: a region has twice the machine's memory, to allow for gaps
// between freed ranges, or less if many ranks share the address space.
std::int64_t capacity_for(int ranks) {
  constexpr std::int64_t kSpace = std::int64_t{32} << 40;
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(2 * memory, kSpace / ranks) / kHugePage * kHugePage;
}

}  // namespace

std::int64_t Pages::add(std::int64_t begin, std::int64_t end) {
  const auto first = static_cast<std::size_t>(begin / unit_);
  const auto last = static_cast<std::size_t>((end + unit_ - 1) / unit_);
  if (last > counted_.size()) counted_.resize(last);
  first_ = end_ == 0 ? first : std::min(first_, first);
  end_ = std::max(end_, last);
  std::int64_t added = 0;
  for (std::size_t page = first; page < last; ++page) {
    if (!counted_[page]) added += unit_;
    counted_[page] = true;
  }
  return added;
}

std::pair<std::int64_t, std::int64_t> Pages::clear() {
  for (std::size_t page = first_; page < end_; ++page) counted_[page] = false;
  const auto first = static_cast<std::int64_t>(std::exchange(first_, 0));
  return {first * unit_, static_cast<std::int64_t>(std::exchange(end_, 0)) * unit_};
}

Peer::Peer(const std::string& invitation) : Peer(Invitation::parse(invitation)) {}

Peer::Peer(const Invitation& invitation)
    : watch_(invitation.process),
      mapping_(opened(invitation).get(), invitation.bytes, PROT_READ | PROT_WRITE) {}

Memory::Memory(int ranks) : region_(capacity_for(ranks)) {}

std::string Memory::invitation() const { return region_.file().invitation().text(); }

std::shared_ptr<Peer> Memory::connect(const std::string& invitation) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [known, peer] : peers_) {
    if (known == invitation) return peer;
  }
  return peers_.emplace_back(invitation, std::make_shared<Peer>(invitation)).second;
}

std::byte* Memory::access(Peer& peer, std::int64_t offset, std::int64_t bytes) {
  const std::int64_t whole = peer.mapping_.bytes();
  ZERO_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= whole,
             "{} bytes at offset {} of a peer's memory, expected a range in its {} bytes", bytes,
             offset, whole);
  const std::scoped_lock lock(mutex_);
  resident_ += offset < whole / 2 ? peer.large_.add(offset, offset + bytes)
                                  : peer.small_.add(whole - offset - bytes, whole - offset);
  return peer.mapping_.data() + offset;
}

void Memory::unmap_excess() {
  const std::scoped_lock lock(mutex_);
  if (resident_ <= kResident) return;
  const auto give_back = [](std::byte* begin, std::int64_t bytes) {
    if (bytes > 0) madvise(begin, static_cast<std::size_t>(bytes), MADV_DONTNEED);
  };
  for (const auto& [invitation, peer] : peers_) {
    std::byte* const start = peer->mapping_.data();
    const auto [first, end] = peer->large_.clear();
    give_back(start + first, end - first);
    const auto [last, before] = peer->small_.clear();  // from the end
    give_back(start + peer->mapping_.bytes() - before, before - last);
  }
  resident_ = 0;
}

}  // namespace zero::host
