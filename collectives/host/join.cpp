// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>

#include "base/checked_math.h"
#include "base/printable.h"
#include "collectives/host/group.h"
#include "collectives/host/refusal.h"

namespace zero::host {
namespace {

// The first refusal among the ranks' lines, for people; "" if there is none.
std::string refusal_in(const std::vector<std::string>& lines, const Group::Membership& seat) {
  const auto refused =
      std::ranges::find_if(lines, [](const auto& line) { return line.starts_with(kRefused); });
  if (refused == lines.end()) return "";
  const auto rank = static_cast<int>(refused - lines.begin());
  return fmt::format("rank {}: {}", seat.name_of(rank), printable_line(refused->substr(1)));
}

// The file that rank 0 (process `first`) made for all, opened from its invitation `line`.
Descriptor file_of_first(const std::string& line, const Process& first, std::int64_t bytes) {
  const Invitation to = Invitation::parse(line);
  ZERO_CHECK(to.process == first, "rank 0 invites to memory of process {}, expected its own, {}",
             to.process.id, first.id);
  ZERO_CHECK(to.bytes == bytes, "rank 0 invites to {} bytes of memory, expected {}", to.bytes,
             bytes);
  return opened(to);
}

}  // namespace

// Rank 0 makes the board; once all have mapped it, no descriptor is needed.
Group::Joined Group::join(const std::shared_ptr<Memory>& memory, const std::string& reason,
                          const Membership& seat, const AllGatherTexts& all_gather_texts) {
  const std::int64_t bytes = Board::bytes_for(seat.size);
  const auto invitations =
      all_gather_texts(attempt([&] { return memory ? memory->invitation() : kRefused + reason; }));
  if (auto refusal = refusal_in(invitations, seat); !refusal.empty()) return {nullptr, refusal};
  std::vector<std::shared_ptr<Peer>> peers(invitations.size());
  std::optional<SharedFile> file;
  auto lines = all_gather_texts(attempt([&] {
    for (int rank = 0; rank < seat.size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank != seat.rank) peers[at] = memory->meet(invitations[at]);
    }
    if (seat.rank != 0) return std::string("-");
    return file.emplace("zero board", bytes).invitation().text();
  }));
  if (auto refusal = refusal_in(lines, seat); !refusal.empty()) return {nullptr, refusal};
  std::optional<Board> board;
  lines = all_gather_texts(attempt([&] {
    if (seat.rank == 0) {
      board.emplace(file->descriptor(), 0, seat.size);
    } else {
      board.emplace(file_of_first(lines[0], peers[0]->process(), bytes).get(), seat.rank,
                    seat.size);
    }
    return usable_cores();
  }));
  if (auto refusal = refusal_in(lines, seat); !refusal.empty()) return {nullptr, refusal};
  std::unique_ptr<Group> group;
  lines = all_gather_texts(attempt([&] {
    group.reset(new Group(memory, std::move(peers), std::move(*board), seat, SpinPolicy(lines)));
    return group->staging_offset();
  }));
  if (auto refusal = refusal_in(lines, seat); !refusal.empty()) return {nullptr, refusal};
  group->read_stagings(lines);
  return {std::move(group), ""};
}

// A wrong line ends the group for all ranks: peers get the error at the first meeting.
void Group::read_stagings(const std::vector<std::string>& lines) {
  try {
    for (int rank = 0; rank < seat_.size; ++rank) {
      const auto& peer = peers_[static_cast<std::size_t>(rank)];
      const std::int64_t region = peer ? peer->capacity() : memory_->region().capacity();
      stagings_.push_back(parse_offset(lines[static_cast<std::size_t>(rank)], seat_.name_of(rank),
                                       2 * half_, region));
    }
  } catch (const std::exception& error) {
    const std::string what = fmt::format("[rank {}] {}", seat_.name(), error.what());
    board_.fail(what);
    throw Error(what);
  }
}

std::shared_ptr<Span> Group::allocate_shared(std::int64_t bytes, const std::string& refusal,
                                             const AllGatherTexts& all_gather_texts) {
  const std::int64_t whole = round_up(bytes, kHugePage);
  std::optional<SharedFile> file;
  const auto sizes = all_gather_texts(std::to_string(bytes));
  for (int rank = 0; rank < seat_.size; ++rank) {
    const std::string& theirs = sizes[static_cast<std::size_t>(rank)];
    ZERO_CHECK(theirs == std::to_string(bytes),
               "[rank {}] allocate_shared: {} bytes met {} of rank {}", seat_.name(), bytes,
               printable_line(theirs), seat_.name_of(rank));
  }
  auto lines = all_gather_texts(attempt([&]() -> std::string {
    ZERO_CHECK(refusal.empty(), "{}", refusal);
    std::erase_if(shared_, [](const SharedMemory& memory) { return memory.user.expired(); });
    shared_.reserve(shared_.size() + 1);
    if (seat_.rank != 0) return "-";
    return file.emplace("zero shared", whole).invitation().text();
  }));
  if (!refusal_in(lines, seat_).empty()) return nullptr;
  std::shared_ptr<Span> span;
  lines = all_gather_texts(attempt([&]() -> std::string {
    if (seat_.rank == 0) {
      span = std::make_shared<Span>(file->descriptor(), whole, PROT_READ | PROT_WRITE);
      make_huge(span->data(), bytes / kHugePage * kHugePage);
    } else {
      const Descriptor theirs = file_of_first(lines[0], peers_[0]->process(), whole);
      span = std::make_shared<Span>(theirs.get(), whole, PROT_READ | PROT_WRITE);
    }
    return "-";
  }));
  if (!refusal_in(lines, seat_).empty()) return nullptr;
  shared_.push_back({++shared_made_, span.get(), span});
  return span;
}

}  // namespace zero::host
