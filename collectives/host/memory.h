// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "collectives/host/process.h"

namespace zero::host {

/// The data by which another process of the host finds a SharedFile and recognizes it, sent as one
/// line of text.
struct Invitation {
  Process process{};
  std::string space;                     ///< the PID namespace of the process's number
  std::string users;                     ///< the user namespace of the process
  int descriptor = -1;                   ///< number of the open file in that process
  std::int64_t bytes = 0;                ///< of memory, in whole pages
  std::array<std::uint64_t, 2> token{};  ///< random; stored in the file behind the memory

  std::string text() const;
  /// Parses the output of text(). Throws zero::Error on any other text.
  static Invitation parse(const std::string& text);
};

/// An anonymous file of memory that processes of the same user on one host share. The file has no
/// name and lives until its last user closes it. One more page behind the memory holds a random
/// token that tells the file from any other.
class SharedFile {
 public:
  /// Makes a file of `bytes` zero bytes, in whole pages. Throws zero::Error with the system's
  /// reason.
  SharedFile(const char* name, std::int64_t bytes);

  int descriptor() const { return file_.get(); }
  std::int64_t bytes() const { return bytes_; }
  /// Lets another process open this file while this one keeps it open.
  Invitation invitation() const;

 private:
  std::int64_t bytes_;
  std::array<std::uint64_t, 2> token_;
  Descriptor file_;
};

/// Opens the file behind an invitation for reading and writing. Throws zero::Error unless the
/// process is the one named and runs as this user, and the file has this owner, that size and that
/// token.
Descriptor opened(const Invitation& invitation);

/// First character of a line that says why a rank cannot do its part, sent in place of the line
/// that its peers expect.
inline constexpr char kRefused = '!';

/// Runs `work`, which returns a line, and turns an exception into a refusal, so that a rank always
/// comes to the exchange in which its peers wait for its line.
template <typename Work>
std::string attempt(Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return kRefused + std::string(error.what());
  } catch (...) {
    return kRefused + std::string("an error without a message");
  }
}

/// Bytes of a huge page.
inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Address space, aligned for huge pages, with one shared file mapped into it.
class Mapping {
 public:
  /// Maps [0, bytes) of `descriptor` with `protection`. Throws zero::Error with the system's
  /// reason.
  Mapping(int descriptor, std::int64_t bytes, int protection);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Populates a shared mapping with huge pages at once, if the kernel has any; `bytes` is a multiple
/// of kHugePage.
void make_huge(std::byte* data, std::int64_t bytes);

/// The memory of this process that its peers on the host can access: one anonymous file, sparse and
/// mapped once, from which allocations take ranges. Peers map the same file, so a range has one
/// offset for all and no mapping is ever stale: freeing a range returns its pages to the system in
/// all processes at once. Thread-safe.
class Region {
 public:
  /// Reserves `capacity` bytes of address space, no memory. Throws zero::Error with the system's
  /// reason.
  explicit Region(std::int64_t capacity);

  const SharedFile& file() const { return file_; }
  std::int64_t capacity() const { return mapping_.bytes(); }
  const std::byte* data() const { return mapping_.data(); }

  /// Allocates `bytes` > 0, page-aligned. Ranges of 2 MiB or more are aligned to huge pages and
  /// populated with them at once, if the kernel has any; they come from the start of the region and
  /// smaller ones from its end, so that peers can tell them apart. Null if there is no room.
  void* allocate(std::int64_t bytes);
  /// Frees a range of allocate(bytes).
  void free(void* data, std::int64_t bytes) noexcept;
  /// The offset of `data` in the file if all `bytes` lie in it; else -1.
  std::int64_t offset_of(const void* data, std::int64_t bytes) const;

 private:
  std::int64_t take(std::int64_t bytes, std::int64_t alignment);
  void give_back(std::int64_t begin, std::int64_t bytes);

  SharedFile file_;
  Mapping mapping_;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> free_;  // offset -> bytes, never adjacent
};

/// The pages of a range of memory that count as resident: one bit per `unit` bytes.
class Pages {
 public:
  explicit Pages(std::int64_t unit) : unit_(unit) {}
  /// Counts bytes [begin, end) of the range; returns the number of bytes not counted before.
  std::int64_t add(std::int64_t begin, std::int64_t end);
  /// Returns the smallest byte range with all counted pages, and clears the count.
  std::pair<std::int64_t, std::int64_t> clear();

 private:
  std::int64_t unit_;
  std::vector<bool> counted_;  // grows to the farthest page
  std::size_t first_ = 0;      // all that are counted lie in [first_, end_)
  std::size_t end_ = 0;
};

/// Another process's Region, mapped by this one, and those of its pages that count as resident
/// here.
class Peer {
 public:
  /// Bytes that the kernel maps around a touched page of ordinary size (fault-around).
  static constexpr std::int64_t kFaultedPages = std::int64_t{64} << 10;

  /// Maps the file that `invitation` describes. Throws zero::Error with the reason if that is
  /// refused.
  explicit Peer(const std::string& invitation);

  const Process& process() const { return watch_.process(); }
  bool ended() const { return watch_.ended(); }

 private:
  friend class Memory;

  explicit Peer(const Invitation& invitation);

  Watch watch_;
  Mapping mapping_;
  Pages large_{kHugePage};      // of the mapping's first half, from its start
  Pages small_{kFaultedPages};  // of the other half, from its end
};

/// The memory of this process that peers can access, and the peers' memory that it has mapped.
/// Processes of the same user open each other's file through /proc/ID/fd, so the file has no name
/// and is never left behind. Touched pages of peers count as resident memory of this process too,
/// so they are unmapped before they exceed a budget. Thread-safe; one per process is enough.
class Memory {
 public:
  /// Most bytes of peers' pages that stay mapped, besides those of one call of access().
  static constexpr std::int64_t kResident = std::int64_t{4} << 20;

  /// For `ranks` processes on this host. Throws zero::Error with the system's reason.
  explicit Memory(int ranks);

  Region& region() { return region_; }
  /// One line of text from which a peer can map this memory.
  std::string invitation() const;
  /// The peer behind an invitation; mapped once. Throws zero::Error with the reason.
  std::shared_ptr<Peer> connect(const std::string& invitation);

  /// `bytes` of a peer's region at `offset`, valid until the peer frees them. Throws zero::Error
  /// unless they all lie in the region.
  std::byte* access(Peer& peer, std::int64_t offset, std::int64_t bytes);
  /// Unmaps pages of peers if more than kResident bytes of them are mapped; a later access maps
  /// them again.
  void unmap_excess();

 private:
  Region region_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<Peer>>> peers_;  // by invitation
  std::int64_t resident_ = 0;                                         // bytes
};

}  // namespace zero::host
