// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; some systems allow no other anonymous file
#endif

namespace zero::host {
namespace {

using Token = std::array<std::uint64_t, 2>;

constexpr std::string_view kShape =
    "PROCESS START PID_NAMESPACE USER_NAMESPACE DESCRIPTOR BYTES TOKEN TOKEN";

Token random_token() {
  Token token{};
  ZERO_CHECK(getrandom(token.data(), sizeof token, 0) == sizeof token, "getrandom: {}",
             std::strerror(errno));
  return token;
}

// Without MFD_NOEXEC_SEAL if the system does not know it.
int create(const char* name) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  return file >= 0 || errno != EINVAL ? file : memfd_create(name, MFD_CLOEXEC);
}

// The directory of the process in /proc, after a check that it is the process meant. The descriptor
// never refers to another process: once the process ends, look-ups in it fail.
Descriptor directory_of(const Process& process) {
  const std::string path = fmt::format("/proc/{}", process.id);
  Descriptor directory(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  ZERO_CHECK(directory.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  ZERO_CHECK(fstat(directory.get(), &status) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(status.st_uid == geteuid(),
             "{} is of user {}, expected user {}; start all ranks as one user", path, status.st_uid,
             geteuid());
  const std::uint64_t start = start_of(directory);
  ZERO_CHECK(start != 0, "{}/stat cannot be read: {}", path, std::strerror(errno));
  ZERO_CHECK(start == process.start,
             "{} began at clock tick {}, expected {}: it is not the process that invited", path,
             start, process.start);
  return directory;
}

void check_contents(const Descriptor& file, const std::string& path, const Invitation& to) {
  struct stat status {};
  ZERO_CHECK(fstat(file.get(), &status) == 0, "{}: {}", path, std::strerror(errno));
  ZERO_CHECK(status.st_uid == geteuid(), "{} is a file of user {}, expected one of user {}", path,
             status.st_uid, geteuid());
  ZERO_CHECK(status.st_size == to.bytes + page_bytes(), "{} has {} bytes, expected {}", path,
             status.st_size, to.bytes + page_bytes());
  Token token{};
  const ssize_t length = pread(file.get(), token.data(), sizeof token, to.bytes);
  ZERO_CHECK(length == sizeof token && token == to.token,
             "{} holds another token than the invitation: it is another job's file", path);
}

// Linux 6.1: populates a range with huge pages at once, regardless of the system's setting for
// shared memory. Headers of older systems lack the constant.
constexpr int kCollapse = 25;

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

// Address space is cheap but finite: a region has twice the machine's memory, to allow for gaps
// between freed ranges, or less if many ranks share the address space.
std::int64_t capacity_for(int ranks) {
  constexpr std::int64_t kSpace = std::int64_t{32} << 40;
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(2 * memory, kSpace / ranks) / kHugePage * kHugePage;
}

}  // namespace

std::string Invitation::text() const {
  return fmt::format("{} {} {} {} {} {} {:x} {:x}", process.id, process.start, space, users,
                     descriptor, bytes, token[0], token[1]);
}

Invitation Invitation::parse(const std::string& text) {
  Invitation to;
  std::istringstream words(text);
  words >> to.process.id >> to.process.start >> to.space >> to.users >> to.descriptor >> to.bytes >>
      std::hex >> to.token[0] >> to.token[1];
  ZERO_CHECK(!words.fail() && words.peek() == std::istringstream::traits_type::eof(),
             "\"{}\" is no invitation to a process's memory, expected \"{}\"", printable_line(text),
             kShape);
  return to;
}

SharedFile::SharedFile(const char* name, std::int64_t bytes)
    : bytes_(bytes), token_(random_token()), file_(create(name)) {
  ZERO_CHECK(file_.get() >= 0, "memfd_create: {}", std::strerror(errno));
  const std::int64_t whole = bytes + page_bytes();
  ZERO_CHECK(whole <= longest_file(), "files are limited to {} bytes (ulimit -f), {} are needed",
             longest_file(), whole);
  ZERO_CHECK(ftruncate(file_.get(), whole) == 0, "ftruncate to {} bytes: {}", whole,
             std::strerror(errno));
  ZERO_CHECK(pwrite(file_.get(), token_.data(), sizeof token_, bytes) == sizeof token_,
             "no memory for a page of a shared file: {}", std::strerror(errno));
}

Invitation SharedFile::invitation() const {
  return {this_process(), process_namespace(), user_namespace(), file_.get(), bytes_, token_};
}

Descriptor opened(const Invitation& to) {
  // Across user namespaces, only a process of an enclosing namespace could open the other's files,
  // never both ways.
  ZERO_CHECK(to.users == user_namespace(),
             "process {} runs in another user namespace (a container for each rank), {}; this one "
             "in {}; start the launcher inside one container, or share the namespace (apptainer "
             "--sharens)",
             to.process.id, to.users, user_namespace());
  ZERO_CHECK(to.space == process_namespace(),
             "process {} runs in another PID namespace, {}; this one in {}", to.process.id,
             to.space, process_namespace());
  const std::string path = fmt::format("/proc/{}/fd/{}", to.process.id, to.descriptor);
  const Descriptor directory = directory_of(to.process);
  Descriptor file(
      openat(directory.get(), fmt::format("fd/{}", to.descriptor).c_str(), O_RDWR | O_CLOEXEC));
  ZERO_CHECK(file.get() >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
  check_contents(file, path, to);
  return file;
}

// Touches a page of each huge page, then asks for the whole: as fast as the first touch of a
// private huge page; single faults take three times as long. Only hints: results do not depend on
// them.
void make_huge(std::byte* data, std::int64_t bytes) {
  if (madvise(data, size(bytes), MADV_HUGEPAGE) != 0) return;
  for (std::int64_t at = 0; at < bytes; at += kHugePage) {
    *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{};
  }
  madvise(data, size(bytes), kCollapse);
}

Mapping::Mapping(int descriptor, std::int64_t bytes, int protection) : bytes_(bytes) {
  const std::int64_t reserved = bytes + kHugePage;
  void* const space =
      mmap(nullptr, size(reserved), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ZERO_CHECK(space != MAP_FAILED, "no address space for {} bytes: {}", reserved,
             std::strerror(errno));
  auto* const start = static_cast<std::byte*>(space);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(start));
  const std::int64_t before = round_up(address, kHugePage) - address;
  if (before > 0) munmap(start, size(before));
  munmap(start + before + bytes, size(kHugePage - before));
  data_ = start + before;
  if (mmap(data_, size(bytes), protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor, 0) ==
      MAP_FAILED) {
    const int code = errno;
    munmap(data_, size(bytes));
    fail("{} bytes cannot be mapped: {}", bytes, std::strerror(code));
  }
  madvise(data_, size(bytes), MADV_DONTDUMP);  // mostly holes, and mapped by every process
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size(bytes_));
}

Region::Region(std::int64_t capacity)
    : file_("zero", capacity),
      mapping_(file_.descriptor(), capacity, PROT_READ | PROT_WRITE),
      free_{{0, capacity}} {
  madvise(mapping_.data(), size(capacity), MADV_NOHUGEPAGE);  // except ranges that fill huge pages
}

void* Region::allocate(std::int64_t bytes) {
  if (bytes > capacity()) return nullptr;
  const bool large = bytes >= kHugePage;
  const std::scoped_lock lock(mutex_);
  const std::int64_t begin = take(round_up(bytes, page_bytes()), large ? kHugePage : page_bytes());
  if (begin < 0) return nullptr;
  std::byte* const data = mapping_.data() + begin;
  if (large) make_huge(data, bytes / kHugePage * kHugePage);
  return data;
}

void Region::free(void* data, std::int64_t bytes) noexcept {
  const std::int64_t begin = static_cast<std::byte*>(data) - mapping_.data();
  const std::int64_t length = round_up(bytes, page_bytes());
  const std::scoped_lock lock(mutex_);
  fallocate(file_.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, length);
  madvise(data, size(length), MADV_NOHUGEPAGE);
  try {
    give_back(begin, length);
  } catch (const std::bad_alloc&) {
    return;  // loses address space, not memory
  }
}

std::int64_t Region::offset_of(const void* data, std::int64_t bytes) const {
  const std::int64_t begin = static_cast<const std::byte*>(data) - mapping_.data();
  return begin >= 0 && begin <= capacity() - bytes ? begin : -1;
}

// The first fit for large ranges, the last one for others.
std::int64_t Region::take(std::int64_t bytes, std::int64_t alignment) {
  const auto start_in = [&](const std::pair<const std::int64_t, std::int64_t>& range) {
    const auto [begin, length] = range;
    const std::int64_t last = begin + length - bytes;
    const std::int64_t start = alignment == page_bytes() ? last : round_up(begin, alignment);
    return start >= begin && start <= last ? start : -1;
  };
  const auto fits = [&](const auto& range) { return start_in(range) >= 0; };
  auto range = free_.end();
  if (alignment == page_bytes()) {
    const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
    if (found != free_.rend()) range = std::prev(found.base());
  } else {
    range = std::find_if(free_.begin(), free_.end(), fits);
  }
  if (range == free_.end()) return -1;
  const auto [begin, length] = *range;
  const std::int64_t start = start_in(*range);
  const std::int64_t after = begin + length - start - bytes;
  free_.erase(range);
  if (start > begin) free_.emplace(begin, start - begin);
  if (after > 0) free_.emplace(start + bytes, after);
  return start;
}

void Region::give_back(std::int64_t begin, std::int64_t bytes) {
  const auto next = free_.lower_bound(begin);
  const auto left = next == free_.begin() ? free_.end() : std::prev(next);
  std::int64_t end = begin + bytes;
  if (next != free_.end() && next->first == end) {
    end += next->second;
    free_.erase(next);
  }
  if (left != free_.end() && left->first + left->second == begin) {
    left->second = end - left->first;
  } else {
    free_.emplace(begin, end - begin);
  }
}

std::int64_t Pages::add(std::int64_t begin, std::int64_t end) {
  const auto first = static_cast<std::size_t>(begin / unit_);
  const auto last = static_cast<std::size_t>(div_ceil(end, unit_));
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
