// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/file_system_type.h"

#include <fmt/format.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>

namespace zero::files {
namespace {

struct KnownType {
  std::uint32_t number;
  const char* name;
  Medium medium = Medium::disk;
  bool side_by_side = false;
};

// The system's headers name some of these only.
constexpr std::array kKnownTypes{
    KnownType{0xef53, "ext4", Medium::disk, true},
    KnownType{0x58465342, "xfs", Medium::disk, true},
    KnownType{0x9123683e, "btrfs", Medium::disk, true},
    KnownType{0x794c7630, "overlay", Medium::disk, true},
    KnownType{0x2fc12fc1, "ZFS"},
    KnownType{0xca451a4e, "bcachefs"},
    KnownType{0xf2f52010, "f2fs"},
    KnownType{0x01021994, "tmpfs", Medium::memory},
    KnownType{0x858458f6, "ramfs", Medium::memory},
    KnownType{0x6969, "NFS", Medium::network},
    KnownType{0x517b, "SMB", Medium::network},
    KnownType{0xff534d42, "CIFS", Medium::network},
    KnownType{0xfe534d42, "SMB 2", Medium::network},
    KnownType{0x0bd00bd0, "Lustre", Medium::network},
    KnownType{0x00c36400, "Ceph", Medium::network},
    KnownType{0x47504653, "GPFS", Medium::network},
    KnownType{0x19830326, "BeeGFS", Medium::network},
    KnownType{0x7461636f, "OCFS2", Medium::network},
    KnownType{0x01161970, "GFS2", Medium::network},
    KnownType{0x20030528, "OrangeFS", Medium::network},
    KnownType{0xaad7aaea, "PanFS", Medium::network},
    KnownType{0x73757245, "Coda", Medium::network},
    KnownType{0x5346414f, "AFS", Medium::network},
    KnownType{0x6b414653, "AFS", Medium::network},  // of the kernel
    KnownType{0x01021997, "9p", Medium::network},
    KnownType{0x786f4256, "vboxsf", Medium::network},
    KnownType{0xbacbacbc, "vmhgfs", Medium::network},
    KnownType{0x65735546, "FUSE", Medium::network},
};

KnownType known_type(std::int64_t type) {
  const auto number = static_cast<std::uint32_t>(type);  // some systems keep it in a signed word
  const auto* const found = std::ranges::find(kKnownTypes, number, &KnownType::number);
  return found == kKnownTypes.end() ? KnownType{number, nullptr} : *found;
}

}  // namespace

std::int64_t type_of_path(const std::string& path) {
  struct statfs holder {};
  return ::statfs(path.c_str(), &holder) == 0 ? static_cast<std::uint32_t>(holder.f_type) : 0;
}

Medium medium_of_type(std::int64_t type) { return known_type(type).medium; }

bool may_need_server(std::int64_t type) {
  const KnownType known = known_type(type);
  return known.name == nullptr || known.medium == Medium::network;
}

std::string name_of_type(std::int64_t type) {
  const KnownType known = known_type(type);
  return known.name != nullptr ? known.name : fmt::format("file system {:#x}", known.number);
}

bool takes_requests_side_by_side(std::int64_t type) { return known_type(type).side_by_side; }

}  // namespace zero::files
