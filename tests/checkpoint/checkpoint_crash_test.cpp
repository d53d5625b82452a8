// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A crash at every point of saves, with every few changes lost that were not synced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/support/long_tests.h"
#include "weights/checkpoint_reader.h"

namespace zero::testing {
namespace {

using Contents = std::map<std::string, std::string>;

const std::string kRuns = "runs/a";

/// The states of a disk after a crash. Changes reach the disk in any order between syncs, or not at
/// all; those that a sync before the crash covers have.
class Crashes {
 public:
  /// `before` is what the disk held before the changes.
  explicit Crashes(const std::vector<Change>& changes, Tree before = {})
      : changes_(changes), before_(std::move(before)) {
    for (std::size_t i = 0; i < changes.size(); ++i) {
      std::size_t sync = i + 1;
      while (sync < changes.size() && !changes[sync].covers(changes[i])) ++sync;
      durable_from_.push_back(sync + 1);
    }
  }

  /// Indices of the changes among the first `count` that no sync among them covers.
  std::vector<std::size_t> pending(std::size_t count) const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < count; ++i) {
      if (!changes_[i].is_sync() && count < durable_from_[i]) result.push_back(i);
    }
    return result;
  }

  /// The disk after a crash behind the first `count` changes, without those of `lost`.
  Tree after(std::size_t count, const std::vector<std::size_t>& lost) const {
    Tree tree = before_;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::find(lost.begin(), lost.end(), i) == lost.end()) {
        tree.apply(changes_[i]);
      } else {
        tree.lose(changes_[i]);
      }
    }
    return tree;
  }

 private:
  const std::vector<Change>& changes_;
  Tree before_;
  std::vector<std::size_t> durable_from_;  // the shortest prefix in which a change is durable
};

/// Saves whose crashes are looked at, and the checkpoints that each leaves.
class Record {
 public:
  struct Commit {
    std::size_t end = 0;  ///< changes until commit_checkpoint had returned
    Contents contents;
  };

  Record() {
    save(1, 1);
    save(2, 2);
    prune_checkpoints(files_, kRuns, {.last = 1}, 2);
    save(2, 3);
  }

  const std::vector<Change>& changes() const { return files_.changes(); }

  /// The checkpoints one of which must be found after a crash behind `count` changes; nothing: none
  /// need be.
  std::vector<std::optional<Contents>> allowed(std::size_t count) const {
    std::vector<std::optional<Contents>> result = {std::nullopt};
    for (const Commit& commit : commits_) {
      if (commit.end <= count) result.clear();
      result.emplace_back(commit.contents);
      if (commit.end > count) break;
    }
    return result;
  }

 private:
  void save(std::int64_t step, std::uint32_t seed) {
    EXPECT_EQ(save_checkpoint(files_, kRuns, step, small_layout(), seed), RemovalNotes{});
    const std::string path = checkpoint_path(kRuns, {step});
    commits_.push_back({files_.changes().size(), files_.tree().contents(path)});
  }

  MemoryFiles files_;
  std::vector<Commit> commits_;
};

/// The newest complete checkpoint; every complete one must be whole.
std::optional<Contents> newest(MemoryFiles& files) {
  EXPECT_FALSE(files.tree().collided());
  std::optional<Contents> result;
  for (const FoundCheckpoint& found : find_checkpoints(files, kRuns)) {
    if (!found.complete()) continue;
    for (const CheckpointFault& fault : verify_checkpoint(files, found.path))
      ADD_FAILURE() << fault.reason;
    if (!result) result = files.tree().contents(found.path);
  }
  return result;
}

/// Saves once more, as a resumed run does: nothing may be left of the crash.
void expect_goes_on(MemoryFiles& files) {
  static const CheckpointLayout layout = small_layout();
  EXPECT_EQ(save_checkpoint(files, kRuns, 3, layout, 4), RemovalNotes{});
  EXPECT_EQ(prune_checkpoints(files, kRuns, {.last = 1}, 3).notes, RemovalNotes{});
  EXPECT_EQ(files.list(kRuns), std::vector<std::string>{"step_00000003"});
  EXPECT_TRUE(verify_checkpoint(files, checkpoint_path(kRuns, {3})).empty());
}

class CrashTest : public ::testing::Test {
 protected:
  void check(std::size_t count, const std::vector<std::size_t>& lost) {
    ++cases_;
    MemoryFiles files(crashes_.after(count, lost));
    const std::optional<Contents> found = newest(files);
    const auto allowed = record_.allowed(count);
    EXPECT_NE(std::find(allowed.begin(), allowed.end(), found), allowed.end())
        << "found " << (found ? "another checkpoint" : "none");
    expect_goes_on(files);
    if (HasFailure()) {
      std::string text;
      for (const std::size_t i : lost) text += " " + std::to_string(i);
      FAIL() << "after a crash behind " << count << " of " << record_.changes().size()
             << " changes, without those of numbers" << text;
    }
  }

  std::size_t prefixes() const { return record_.changes().size() + 1; }

  Record record_;
  Crashes crashes_{record_.changes()};
  std::int64_t cases_ = 0;
};

TEST_F(CrashTest, NoneOneOrAllPendingChangesLost) {
  for (std::size_t count = 0; count < prefixes(); ++count) {
    const std::vector<std::size_t> pending = crashes_.pending(count);
    check(count, {});
    check(count, pending);
    for (const std::size_t one : pending) check(count, {one});
    if (HasFailure()) return;
  }
  EXPECT_GT(cases_, 500);
}

TEST_F(CrashTest, TwoOrThreePendingChangesLost) {
  std::mt19937 random(20260101);
  // A sample of the pairs and triples, unless all are asked for.
  const auto wanted = [&] { return long_tests() || random() % 200 == 0; };
  for (std::size_t count = 0; count < prefixes(); ++count) {
    const std::vector<std::size_t> pending = crashes_.pending(count);
    for (std::size_t i = 0; i < pending.size(); ++i) {
      for (std::size_t j = i + 1; j < pending.size(); ++j) {
        if (wanted()) check(count, {pending[i], pending[j]});
        for (std::size_t k = j + 1; k < pending.size(); ++k) {
          if (wanted()) check(count, {pending[i], pending[j], pending[k]});
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(cases_, 500);
  RecordProperty("cases", static_cast<int>(cases_));
}

// A run that is resumed after a crash is cut again while it tidies up and saves.
TEST_F(CrashTest, ASecondCrashWhileTheFirstIsTidiedUp) {
  const CheckpointLayout layout = small_layout();
  std::mt19937 random(20260102);
  for (std::size_t count = 0; count < prefixes(); ++count) {
    if (!long_tests() && random() % 24 != 0) continue;
    const Tree before = crashes_.after(count, crashes_.pending(count));
    MemoryFiles files(before);
    std::vector<std::optional<Contents>> allowed = {newest(files)};
    EXPECT_EQ(save_checkpoint(files, kRuns, 3, layout, 4), RemovalNotes{});
    allowed.push_back(newest(files));
    const std::vector<Change> changes = files.changes();
    const Crashes again(changes, before);
    for (std::size_t cut = 0; cut <= changes.size(); ++cut) {
      for (const auto& lost : {std::vector<std::size_t>{}, again.pending(cut)}) {
        MemoryFiles left(again.after(cut, lost));
        const std::optional<Contents> found = newest(left);
        EXPECT_NE(std::find(allowed.begin(), allowed.end(), found), allowed.end());
        expect_goes_on(left);
        ++cases_;
        ASSERT_FALSE(HasFailure()) << "behind " << count << " changes, then behind " << cut;
      }
    }
  }
  EXPECT_GT(cases_, 500);
}

// Small files of any name are known by index.json alone, which therefore outlives them.
TEST(CrashOfARemoval, LeavesNothingToAModelWithoutItsSmallFiles) {
  MemoryFiles files;
  save_checkpoint(files, kRuns, 1, small_layout(), 1);
  save_checkpoint(files, kRuns, 2, small_layout(), 2);
  const Tree before = files.tree();
  const std::size_t begin = files.changes().size();
  prune_checkpoints(files, kRuns, {.last = 1}, 2);
  const std::vector<Change> changes(files.changes().begin() + static_cast<std::ptrdiff_t>(begin),
                                    files.changes().end());
  const CheckpointLayout other =
      lay_out_checkpoint(logical_tensors({{"a", {1}}}), names::plain(), {});
  const Crashes crashes(changes, before);
  for (std::size_t count = 0; count <= changes.size(); ++count) {
    const std::vector<std::size_t> pending = crashes.pending(count);
    std::vector<std::vector<std::size_t>> losses = {{}, pending};
    for (const std::size_t one : pending) {
      for (const std::size_t two : pending) losses.push_back({one, two});
    }
    for (const auto& lost : losses) {
      MemoryFiles left(crashes.after(count, lost));
      EXPECT_FALSE(left.tree().collided());
      EXPECT_EQ(save_checkpoint(left, kRuns, 3, other, 1), RemovalNotes{});
      EXPECT_EQ(prune_checkpoints(left, kRuns, {.last = 1}, 3).notes, RemovalNotes{});
      EXPECT_EQ(left.list(kRuns), std::vector<std::string>{"step_00000003"});
      ASSERT_FALSE(HasFailure()) << "behind " << count << " changes";
    }
  }
}

// The model of the disk can lose what is not synced: a crash just before a sync is not harmless.
TEST_F(CrashTest, ARenameBeforeDataIsSyncedWouldBeFound) {
  std::vector<Change> changes = record_.changes();
  std::erase_if(changes,
                [](const Change& change) { return change.kind == Change::Kind::sync_file; });
  const Crashes crashes(changes);
  bool found_bad = false;
  for (std::size_t count = 0; count <= changes.size(); ++count) {
    MemoryFiles files(crashes.after(count, crashes.pending(count)));
    const std::vector<FoundCheckpoint> found = find_checkpoints(files, kRuns);
    found_bad = found_bad || (!found.empty() && !found[0].complete() &&
                              found[0].name.state == FolderState::committed);
  }
  EXPECT_TRUE(found_bad);
}

// Each call that changes something fails once, as on a full disk: the save says so or succeeds, the
// newest checkpoint is whole, and the next save goes well.
TEST(FailingDisk, LeavesAWholeCheckpointAtEveryCall) {
  const CheckpointLayout layout = small_layout();
  for (std::int64_t call = 0;; ++call) {
    SCOPED_TRACE(call);
    MemoryFiles files;
    save_checkpoint(files, kRuns, 1, layout, 1);
    save_checkpoint(files, kRuns, 2, layout, 2);
    const Contents before = files.tree().contents(checkpoint_path(kRuns, {2}));
    files.fail_at(call);
    std::string error;
    RemovalNotes notes;
    try {
      prune_checkpoints(files, kRuns, {.last = 1}, 2);
      notes = save_checkpoint(files, kRuns, 2, layout, 3);
    } catch (const Error& failure) {
      error = failure.what();
      EXPECT_NE(error.find("No space left on device"), error.npos) << error;
      files.fail_at(-1);
      abandon_checkpoint(files, kRuns, 2, layout, kOwner);
    }
    const bool failed = files.failed();
    files.fail_at(-1);
    const std::optional<Contents> found = newest(files);
    if (error.empty()) {
      EXPECT_NE(found, before);
    }
    EXPECT_TRUE(found);
    expect_goes_on(files);
    if (!failed || HasFailure()) {
      EXPECT_GT(call, 50);
      return;
    }
  }
}

}  // namespace
}  // namespace zero::testing
