// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/lfs_pointer.h"

#include "base/error.h"

namespace zero {

void refuse_lfs_pointer(std::string_view file, std::string_view start) {
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/";
  static_assert(kPointer.size() == kLfsStart);
  ZERO_CHECK(!start.starts_with(kPointer),
             "{}: is a Git LFS pointer, not the file it stands for: the folder was cloned without "
             "its large files; install Git LFS and run git lfs pull in the folder",
             file);
}

}  // namespace zero
