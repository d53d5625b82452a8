// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/disk_room.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/message_text.h"
#include "files/disk_calls.h"

namespace zero {
namespace {

/// `folder`, or the first of those above it that is there.
std::string existing(files::FileSystem& files, const std::string& folder) {
  std::filesystem::path there = std::filesystem::absolute(folder);
  while (files.kind_of(there.string()) == files::PathKind::missing && there.has_relative_path()) {
    there = there.parent_path();
  }
  return there.string();
}

struct Disk {
  std::int64_t free = 0;
  std::optional<dev_t> device{};
};

/// The disk of a folder; nothing if it does not tell.
std::optional<Disk> disk_of(files::FileSystem& files, const std::string& folder) {
  try {
    const std::string there = existing(files, folder);
    Disk disk{.free = files.free_bytes(there)};
    struct stat status {};
    const auto look = [&] { return ::stat(there.c_str(), &status); };
    if (files::uninterrupted(look) == 0) disk.device = status.st_dev;
    return disk;
  } catch (const Error&) {
    return std::nullopt;  // the write tells
  }
}

}  // namespace

std::string missing_room(files::FileSystem& files, std::span<const WantedRoom> wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const WantedRoom& each = wanted[i];
    const std::optional<Disk> disk = disk_of(files, each.folder);
    if (!disk) continue;
    std::int64_t bytes = each.bytes;
    std::int64_t free = disk->free + each.freed;
    std::string what = each.what;
    for (const WantedRoom& before : wanted.first(i)) {
      const std::optional<Disk> other = disk_of(files, before.folder);
      if (!other || !other->device || other->device != disk->device) continue;
      bytes += before.bytes;
      free += before.freed;
      what += fmt::format(" and {} ({}), on the same disk,", before.what, before.key);
    }
    if (free >= bytes) continue;
    return fmt::format("{}: {} has room for {}, and {} take {}: {} are missing; free space there{}",
                       each.key, each.folder, decimal_bytes(free), what, decimal_bytes(bytes),
                       decimal_bytes(bytes - free), each.advice);
  }
  return "";
}

}  // namespace zero
