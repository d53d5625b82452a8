// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

/// Locks an open file, by whatever name it was opened, until its last descriptor is closed. Returns
/// 0, or the system's reason: EAGAIN if another open file has the lock. A lock of the open file,
/// rather than of the process, so that two runs of one process exclude each other too.
int lock_file(int file);

}  // namespace zero
