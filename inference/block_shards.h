// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "inference/block_file.h"

namespace zero {

/// What a rank keeps of each block's matrices (BlockLayout): in memory, or in a BlockFile, if there
/// is a folder for one. Used as a BlockFile is; in memory all calls but load() cost nothing.
class BlockShards {
 public:
  /// Allocates the shards (MemoryClass::parameters), from `group` if its ranks gather them, else,
  /// where it is null, from the device; or the slots of a file. References must outlive this.
  BlockShards(Device& device, Communicator* group, const BlockFile::Size& size,
              const TierFileOptions& file);

  bool in_file() const { return file_.has_value(); }
  /// As BlockFile::open(); in memory nothing.
  void open();
  /// Has `fill` write block `i`.
  void load(std::int64_t i, const std::function<void(const View& shard)>& fill);
  void finish_loading();

  void fetch();
  View use(std::int64_t i, Stream& user);
  void release(Stream& user) noexcept;

  std::string failure() const { return file_ ? file_->failure() : std::string(); }
  BlockReads reads() const { return file_ ? file_->reads() : BlockReads{}; }

 private:
  std::vector<Buffer> kept_;  // of each block
  std::optional<BlockFile> file_;
};

}  // namespace zero
