// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "files/file_system.h"
#include "launch/train/run_lock.h"

namespace zero {

/// Token files made to replace those of an earlier zero_prepare in a folder, all or none: whenever
/// the process is killed, the folder holds the old set, or the new one as soon as
/// finish_interrupted() is called. The files are written in a folder within the folder; its
/// renaming decides, what follows can be done again.
class PreparedSet {
 public:
  /// Finishes what an earlier process has left. Throws zero::Error if another one writes there.
  PreparedSet(files::FileSystem& files, std::string folder);
  PreparedSet(const PreparedSet&) = delete;
  PreparedSet& operator=(const PreparedSet&) = delete;
  /// Removes the files written unless commit() was called.
  ~PreparedSet();

  /// Where the file of the set that is to be called `name` is written.
  std::string path_of(const std::string& name) const { return staging_ + "/" + name; }
  /// Replaces the old set, which is every train_*.bin, validation.bin and their digests, by the
  /// files `names`, which are written.
  void commit(const std::vector<std::string>& names);

  /// Why another process is not kept from writing to the folder, a line for people; empty: it is.
  const std::string& warning() const { return lock_.warning(); }

  /// For which a start waits for another one that settles the folder: a rename and a sync a file,
  /// of a thousand shards on a slow network.
  static constexpr std::chrono::minutes kSettling{5};

  /// Finishes a replacement in `folder` that was decided and interrupted. Processes may call this
  /// at the same time: one does it, the others wait for at most `patience`. Throws zero::Error if
  /// it is not done then.
  static void finish_interrupted(files::FileSystem& files, const std::string& folder,
                                 std::chrono::milliseconds patience = kSettling);

 private:
  /// finish_interrupted() under the lock.
  static void finish(files::FileSystem& files, const std::string& folder);
  void clear();

  files::FileSystem& files_;
  std::string folder_;
  std::string staging_;
  RunLock lock_;
};

}  // namespace zero
