// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_options.h"
#include "checkpoint/rank_statuses.h"

namespace zero {

/// The folder of the checkpoint that is being saved, from its first file to its commit: rank 0
/// makes and commits it, and every rank opens the files that its BlockWriter writes. States: none
/// -> open() -> commit() or remove() -> none.
class PartialCheckpoint {
 public:
  /// `statuses` and `writer`, which are those of the save, outlive this.
  PartialCheckpoint(const StateSource& of, const CheckpointOptions& options, RankStatuses& statuses,
                    BlockWriter& writer);

  /// A checkpoint, beside its states.
  struct Content {
    std::int64_t step = 0;
    std::int64_t steps_skipped = 0;
    nlohmann::ordered_json extra{};
    std::function<void()> before_commit{};  ///< of Checkpointer::save()
  };
  /// Makes the files, and begins the writer with those of this rank. Tells why not, the same on all
  /// ranks, none of which then has a file open. Collective.
  std::string open(Content content);
  /// Rank 0, on any thread, once the files of all ranks are durable. Throws zero::Error; the folder
  /// is then removed.
  void commit(std::span<const std::uint32_t> checksums);
  /// Rank 0, once no rank has a file open.
  void remove();
  /// Rank 0: lines about open(), commit() and remove(), and failures that left a checkpoint whole.
  const std::string& notes() const { return notes_; }

 private:
  bool first() const { return statuses_.rank() == 0; }
  std::string path_of(std::size_t file) const;
  std::string differing_extra(std::span<const RankStatus> statuses);
  void open_files();
  std::string open_what_is_seen();
  void judge_missing(RankStatus& mine, double waited, bool& warned) const;
  std::string missing() const;
  void note(const RemovalNotes& notes);

  Device& device_;
  files::FileSystem& disk_;
  std::string folder_;
  KeepSteps keep_;
  const SaveRules* rules_;  // may be null
  std::chrono::duration<double> look_;
  RankStatuses& statuses_;
  BlockWriter& writer_;
  bool begun_ = false;  // by rank 0: there may be something to remove
  Content content_;
  std::string owner_;  // of the folder: a text of this save alone
  std::string notes_;
};

}  // namespace zero
