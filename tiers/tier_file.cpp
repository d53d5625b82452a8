// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tiers/tier_file.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "files/posix_file.h"

namespace zero {
namespace {

static_assert(TierFile::kBlock % files::Transfer::kBlock == 0);

std::int64_t address_of(const View& view) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(view.data()));
}

}  // namespace

WindowMemory::WindowMemory(Device& device, std::int64_t bytes, std::string_view label) {
  constexpr std::int64_t kBlock = TierFile::kBlock;
  ZERO_CHECK(bytes >= 0 && bytes <= std::numeric_limits<std::int64_t>::max() - 2 * kBlock,
             "tiers: cannot allocate windows of {} bytes for \"{}\"", bytes, label);
  if (bytes == 0) return;
  const std::int64_t blocks = round_up(bytes, kBlock);
  buffer_ = device.allocate_host(blocks + kBlock, DType::u8, MemoryClass::staging, label);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer_.view().data());
  const auto behind = static_cast<std::int64_t>(address % static_cast<std::uintptr_t>(kBlock));
  view_ = buffer_.slice(behind == 0 ? 0 : kBlock - behind, blocks);
}

/// The file and its transfers. All but failure() belongs to the work of the transfer stream.
class TierFile::Transfers {
 public:
  Transfers(const TierFileOptions& options, files::FileSystem& disk, std::int64_t bytes,
            std::span<std::byte> windows)
      : block_bytes_(options.block_bytes),
        overlaps_(options.overlap_events),
        file_(disk.create_scratch(options.folder, bytes)),
        queue_(disk.queue(windows, options.queue)) {}

  void start(Ticket ticket, Kind kind, std::int64_t begin, std::span<std::byte> memory) noexcept;
  void finish(Ticket ticket) noexcept {
    settle([&](const Request& each) { return each.of == ticket; });
  }
  std::string failure() const {
    const std::lock_guard lock(failing_);
    return failure_;
  }

 private:
  /// Of bytes [begin, end) of the file, in flight.
  struct Request {
    Ticket of;
    Kind kind;
    std::int64_t begin;
    std::int64_t end;
    files::TransferQueue::Ticket ticket;

    /// Whether another one of this range may only start when this one is over. Whole blocks: a
    /// part of one passes through the page cache, which others of the block pass by.
    bool meets(Kind other, std::int64_t from, std::int64_t to) const {
      const std::int64_t last = round_up(end, kBlock);
      return (kind == Kind::write || other == Kind::write) && begin / kBlock * kBlock < to &&
             from < last;
    }
  };

  void request(Ticket ticket, Kind kind, std::int64_t begin, std::span<std::byte> memory);
  /// Blocks until the requests that `chosen` holds of are over, failed or not.
  template <typename Chosen>
  void settle(const Chosen& chosen) noexcept;
  /// Runs work that may fail; keeps the first reason.
  template <typename Work>
  void attempt(const Work& work) noexcept;

  const std::int64_t block_bytes_;
  const bool overlaps_;
  std::vector<Request> in_flight_;
  mutable std::mutex failing_;
  std::string failure_;
  files::ScratchFile file_;
  std::unique_ptr<files::TransferQueue> queue_;  // last: it ends transfers of the file
};

void TierFile::Transfers::start(Ticket ticket, Kind kind, std::int64_t begin,
                                std::span<std::byte> memory) noexcept {
  if (!overlaps_) settle([](const Request&) { return true; });
  while (!memory.empty()) {
    // Up to a multiple in the file: what lies below may have to read in order to write a part of
    // its own unit (stripes of RAID 5, records of ZFS, pages of flash).
    const auto length =
        std::min(memory.size(), static_cast<std::size_t>(block_bytes_ - begin % block_bytes_));
    const std::int64_t end = begin + static_cast<std::int64_t>(length);
    settle([&](const Request& each) { return each.meets(kind, begin, end); });
    if (!failure().empty()) return;
    attempt([&] { request(ticket, kind, begin, memory.first(length)); });
    memory = memory.subspan(length);
    begin = end;
  }
  attempt([&] { queue_->flush(); });
}

void TierFile::Transfers::request(Ticket ticket, Kind kind, std::int64_t begin,
                                  std::span<std::byte> memory) {
  const auto started = kind == Kind::read ? queue_->read(*file_.input, begin, memory)
                                          : queue_->write(*file_.output, begin, memory);
  in_flight_.push_back({ticket, kind, begin, begin + std::ssize(memory), started});
}

template <typename Chosen>
void TierFile::Transfers::settle(const Chosen& chosen) noexcept {
  std::erase_if(in_flight_, [&](const Request& each) {
    if (!chosen(each)) return false;
    attempt([&] { queue_->wait(each.ticket); });
    return true;
  });
}

template <typename Work>
void TierFile::Transfers::attempt(const Work& work) noexcept {
  std::string reason;
  try {
    work();
    return;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const std::lock_guard lock(failing_);
  if (failure_.empty()) failure_ = std::move(reason);
}

TierFile::TierFile(Device& device, TierFileOptions options)
    : device_(device), options_(std::move(options)) {
  ZERO_CHECK(options_.block_bytes > 0 && options_.block_bytes % kBlock == 0,
             "tiers: requests of {} bytes, expected a multiple of {}", options_.block_bytes,
             kBlock);
}

TierFile::~TierFile() {
  if (!transfers_) return;
  try {
    device_.transfer().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the stream has failed, and dropped its work
  }
}

View TierFile::reserve(std::int64_t count, DType dtype, MemoryClass memory_class,
                       std::string_view label) {
  ZERO_CHECK(!open_, "tiers: \"{}\" comes after the file was made", label);
  ZERO_CHECK(count >= 0, "tiers: cannot reserve {} elements for \"{}\"", count, label);
  const std::int64_t bytes = checked_mul(count, size_of(dtype));
  if (bytes == 0) return {nullptr, 0, dtype, &device_};
  ranges_.push_back({device_.name_file_range(bytes, memory_class, label), bytes, bytes_});
  const View& blocks = ranges_.back().blocks.view();
  bytes_ += blocks.bytes();
  return blocks.reinterpret(dtype, count);
}

void TierFile::open(const View& windows) {
  ZERO_CHECK(!open_, "tiers: {}: the file is open", options_.folder);
  ZERO_CHECK(windows.device() == nullptr && address_of(windows) % kBlock == 0,
             "tiers: windows need host memory at a multiple of {} bytes", kBlock);
  if (device_.has_memory()) {
    transfers_ = std::make_unique<Transfers>(
        options_, options_.disk != nullptr ? *options_.disk : files::disk(), bytes_,
        std::span(static_cast<std::byte*>(windows.data()),
                  static_cast<std::size_t>(windows.bytes())));
  }
  windows_ = windows;
  open_ = true;
}

std::int64_t TierFile::Range::distance(const View& view) const {
  return address_of(view) - address_of(blocks.view());
}

const TierFile::Range* TierFile::find(const View& view) const {
  const auto behind = std::ranges::partition_point(
      ranges_, [&](const Range& range) { return range.distance(view) >= 0; });
  if (behind == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(behind);
  return range.distance(view) < range.blocks.view().bytes() ? &range : nullptr;
}

bool TierFile::holds(const View& view) const { return find(view) != nullptr; }

const TierFile::Range& TierFile::range_of(const View& view) const {
  const Range* const range = find(view);
  ZERO_CHECK(
      range != nullptr && view.bytes() <= range->blocks.view().bytes() - range->distance(view),
      "tiers: {}: a view of {} x {} is in no range of the file", options_.folder, view.count(),
      name_of(view.dtype()));
  return *range;
}

View TierFile::around(const View& view, std::int64_t grain) const {
  ZERO_CHECK(grain > 0 && grain % kBlock == 0,
             "tiers: a grain of {} bytes, expected multiples of {}", grain, kBlock);
  const Range& range = range_of(view);
  const std::int64_t all = range.blocks.view().bytes();
  const std::int64_t least = std::min(grain, all);  // so that nothing overflows
  const std::int64_t begin = range.distance(view) / least * least;
  const std::int64_t end = std::min(round_up(range.distance(view) + view.bytes(), least), all);
  return range.blocks.slice(begin, end - begin);
}

TierFile::Ticket TierFile::start_read(const View& from, const View& to) {
  return start(Kind::read, from, to);
}

TierFile::Ticket TierFile::start_write(const View& from, const View& to) {
  return start(Kind::write, to, from);
}

TierFile::Ticket TierFile::start(Kind kind, const View& view, const View& memory) {
  ZERO_CHECK(open_, "tiers: {}: the file is not open", options_.folder);
  ++last_;
  if (view.empty() && memory.empty()) return last_;
  const Range& range = range_of(view);
  const std::int64_t begin = range.distance(view);
  const bool ends = begin + view.bytes() >= range.bytes;
  const std::int64_t bytes = ends ? range.blocks.view().bytes() - begin : view.bytes();
  const std::int64_t place = address_of(memory) - address_of(windows_);
  ZERO_CHECK(view.bytes() == memory.bytes(),
             "tiers: {}: {} bytes of the file and {} bytes of a window are of no transfer",
             options_.folder, view.bytes(), memory.bytes());
  ZERO_CHECK(place >= 0 && place <= windows_.bytes() - bytes,
             "tiers: {}: {} bytes at byte {} are not in the windows, which have {} bytes",
             options_.folder, bytes, place, windows_.bytes());
  if (!transfers_) return last_;
  device_.transfer().submit_host(
      kind == Kind::read ? "read of a file tier" : "write of a file tier",
      [transfers = transfers_.get(), ticket = last_, kind, at = range.begin + begin,
       to = std::span(static_cast<std::byte*>(memory.data()), static_cast<std::size_t>(bytes))] {
        transfers->start(ticket, kind, at, to);
      });
  return last_;
}

void TierFile::finish(Ticket ticket) {
  ZERO_CHECK(ticket > 0 && ticket <= last_, "tiers: {}: no transfer has ticket {}; the last is {}",
             options_.folder, ticket, last_);
  if (!transfers_) return;
  device_.transfer().submit_host(
      "end of a file tier's transfer",
      [transfers = transfers_.get(), ticket] { transfers->finish(ticket); });
}

std::string TierFile::failure() const { return transfers_ ? transfers_->failure() : ""; }

}  // namespace zero
