// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "collectives/host/transport.h"

namespace zero::host {
namespace {

// The first refusal among the ranks' lines; "" if there is none.
std::string refusal_in(const std::vector<std::string>& lines,
                       const HostTransport::Membership& membership) {
  const auto refused =
      std::ranges::find_if(lines, [](const auto& line) { return line.starts_with(kRefused); });
  if (refused == lines.end()) return "";
  const auto rank = static_cast<int>(refused - lines.begin());
  return fmt::format("rank {}: {}", membership.name_of(rank), refused->substr(1));
}

// The file that rank 0 made for all, opened from its invitation `line`.
Descriptor file_of_first(const std::string& line, std::int64_t bytes) {
  const Invitation to = Invitation::parse(line);
  ZERO_CHECK(to.bytes == bytes, "rank 0 invites to {} bytes of memory, expected {}", to.bytes,
             bytes);
  return opened(to);
}

/// Allocations from this size on are shared with the host's ranks; smaller values travel behind the
/// header of a call.
constexpr std::int64_t kShared = ControlBlock::kInlineBytes + 1;

std::int64_t bytes_of(const BufferRequest& request) {
  return checked_mul(std::max<std::int64_t>(request.count, 0), size_of(request.dtype));
}

Buffer buffer_at(void* data, const BufferRequest& r, std::function<void(void*)> free) {
  return {{data, r.count, r.dtype, &r.device},
          r.memory_class,
          std::string(r.label),
          r.device.ledger(),
          std::move(free)};
}

}  // namespace

// Rank 0 makes the control block; once all have mapped it, no descriptor is needed.
HostTransport::Joined HostTransport::join(const std::shared_ptr<Memory>& memory,
                                          const std::string& reason, const Membership& membership,
                                          const AllGatherTexts& all_gather_texts) {
  const std::int64_t bytes = ControlBlock::bytes_for(membership.size);
  const auto invitations =
      all_gather_texts(attempt([&] { return memory ? memory->invitation() : kRefused + reason; }));
  if (auto refusal = refusal_in(invitations, membership); !refusal.empty())
    return {nullptr, refusal};
  std::vector<std::shared_ptr<Peer>> peers(invitations.size());
  std::optional<SharedFile> file;
  auto lines = all_gather_texts(attempt([&] {
    for (int rank = 0; rank < membership.size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank != membership.rank) peers[at] = memory->connect(invitations[at]);
    }
    if (membership.rank != 0) return std::string("-");
    return file.emplace("zero control", bytes).invitation().text();
  }));
  if (auto refusal = refusal_in(lines, membership); !refusal.empty()) return {nullptr, refusal};
  std::optional<ControlBlock> control;
  lines = all_gather_texts(attempt([&] {
    if (membership.rank == 0) {
      control.emplace(file->descriptor(), 0, membership.size);
    } else {
      control.emplace(file_of_first(lines[0], bytes).get(), membership.rank, membership.size);
    }
    return usable_cores();
  }));
  if (auto refusal = refusal_in(lines, membership); !refusal.empty()) return {nullptr, refusal};
  std::unique_ptr<HostTransport> transport;
  lines = all_gather_texts(attempt([&] {
    transport.reset(new HostTransport(memory, std::move(peers), std::move(*control), membership,
                                      SpinPolicy(lines)));
    return transport->staging_offset();
  }));
  if (auto refusal = refusal_in(lines, membership); !refusal.empty()) return {nullptr, refusal};
  for (const std::string& line : lines) transport->stagings_.push_back(std::stoll(line));
  return {std::move(transport), ""};
}

std::shared_ptr<Mapping> HostTransport::allocate_shared(std::int64_t bytes,
                                                        const std::string& refusal,
                                                        const AllGatherTexts& all_gather_texts) {
  const std::int64_t whole = round_up(bytes, kHugePage);
  std::optional<SharedFile> file;
  const auto sizes = all_gather_texts(std::to_string(bytes));
  for (int rank = 0; rank < membership_.size; ++rank) {
    const std::string& theirs = sizes[static_cast<std::size_t>(rank)];
    ZERO_CHECK(theirs == std::to_string(bytes),
               "[rank {}] allocate_shared: {} bytes met {} of rank {}", membership_.name(), bytes,
               theirs, membership_.name_of(rank));
  }
  auto lines = all_gather_texts(attempt([&]() -> std::string {
    ZERO_CHECK(refusal.empty(), "{}", refusal);
    std::erase_if(shared_, [](const SharedMemory& memory) { return memory.user.expired(); });
    shared_.reserve(shared_.size() + 1);
    if (membership_.rank != 0) return "-";
    return file.emplace("zero shared", whole).invitation().text();
  }));
  if (!refusal_in(lines, membership_).empty()) return nullptr;
  std::shared_ptr<Mapping> mapping;
  lines = all_gather_texts(attempt([&]() -> std::string {
    if (membership_.rank == 0) {
      mapping = std::make_shared<Mapping>(file->descriptor(), whole, PROT_READ | PROT_WRITE);
      make_huge(mapping->data(), bytes / kHugePage * kHugePage);
    } else {
      const Descriptor theirs = file_of_first(lines[0], whole);
      mapping = std::make_shared<Mapping>(theirs.get(), whole, PROT_READ | PROT_WRITE);
    }
    return "-";
  }));
  if (!refusal_in(lines, membership_).empty()) return nullptr;
  shared_.push_back({++shared_made_, mapping.get(), mapping});
  return mapping;
}

Buffer region_buffer(const std::shared_ptr<Memory>& memory, const BufferRequest& request) {
  const std::int64_t bytes = bytes_of(request);
  if (memory && bytes >= kShared && request.device.name() == "cpu") {
    if (void* const data = memory->region().allocate(bytes)) {
      return buffer_at(data, request,
                       [memory, bytes](void* place) { memory->region().free(place, bytes); });
    }
  }
  return request.device.allocate(request.count, request.dtype, request.memory_class, request.label);
}

std::optional<Buffer> shared_buffer(HostTransport& transport,
                                    const HostTransport::AllGatherTexts& all_gather_texts,
                                    const BufferRequest& request) {
  const std::int64_t bytes = bytes_of(request);
  if (bytes == 0) return std::nullopt;
  const std::string refusal =
      request.device.name() == "cpu" ? "" : "a rank's device is not the CPU";
  const auto mapping = transport.allocate_shared(bytes, refusal, all_gather_texts);
  if (!mapping) return std::nullopt;
  return buffer_at(mapping->data(), request, [user = mapping](void*) { static_cast<void>(user); });
}

}  // namespace zero::host
