// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero::files {

/// What the files of a file system lie on.
enum class Medium : std::uint8_t {
  disk,     ///< also where the type tells nothing else
  memory,   ///< tmpfs, ramfs: files take memory
  network,  ///< NFS, SMB, Lustre, Ceph and their kin, folders of a virtual machine's host, and
            ///< FUSE, which may be one
};

/// The type of the file system that `path` lies on, as statfs(2) gives it; 0 if that cannot tell.
std::int64_t type_of_path(const std::string& path);

// Each takes such a type, sign or not.

Medium medium_of_type(std::int64_t type);
/// Whether a page of a file may wait for a server: also where the type is not known here.
bool may_need_server(std::int64_t type);
/// "ext4", or "file system 0x1234" if the type is not known here.
std::string name_of_type(std::int64_t type);
/// Whether io_uring runs direct transfers of one file side by side. It runs one at a time where a
/// file system waits for the disk while it takes a request: writes then hold the file, and reads
/// the submitting thread.
bool takes_requests_side_by_side(std::int64_t type);

}  // namespace zero::files
