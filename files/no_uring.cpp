// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/uring_queue.h"

namespace zero::files {

UringQueue open_uring_queue(std::span<std::byte> /*memory*/, const QueueOptions& /*options*/) {
  return {nullptr, "built without liburing, which launch/install_packages.sh installs"};
}

}  // namespace zero::files
