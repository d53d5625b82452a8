// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Saves and loads on disks that fail, are slow, or are not the same for all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "collectives/backends.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/support/long_tests.h"
#include "tests/told_lines.h"
#include "weights/checkpoint_reader.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kWorld = 4;

/// The run of all cases: ranks 0 and 2 write files, and take elements from 1 and 3.
SavedRun plain_run(const std::string& folder) {
  SavedRun with = run_of(kWorld, 3, folder);
  with.job.mesh.replicate = 2;
  return with;
}

/// Three steps that save after steps 1 and 2, on disks with `faults` on one rank.
SavedRun run_with(const std::string& folder, files::FileSystem& disk, int rank) {
  SavedRun with = plain_run(folder);
  with.checkpoints.file_bytes = 4800;  // two files for each kind of state
  with.save_after = {1, 2};
  with.disk_of = [&disk, rank](int of) { return of == rank ? &disk : nullptr; };
  return with;
}

std::uint64_t hash_without_faults() {
  static const std::uint64_t hash = [] { return toy::train(plain_run("").job).hash; }();
  return hash;
}

/// Loads the newest checkpoint of `folder` after a fault.
std::int64_t newest(const std::string& folder) {
  SavedRun with = run_of(2, 2, folder);
  with.resume = "auto";
  with.last = 0;
  return run(with).resumed_at;
}

/// A fault in one call of one rank: all ranks tell the same (run() checks), training goes on with
/// the same bits, and what was whole stays so.
void expect_harmless(const std::string& call, int number, int rank, const std::string& reason) {
  SCOPED_TRACE(fmt::format("{} {} of rank {}", call, number, rank));
  Scratch scratch;
  Faults faults(reason);
  faults.fail_at(call, number);
  HookedDisk disk(std::ref(faults));
  const RunResult result = run(run_with(scratch.path("run"), disk, rank));
  ASSERT_TRUE(faults.happened());
  EXPECT_EQ(result.hash, hash_without_faults());
  ASSERT_THAT(result.reports, SizeIs(2));
  int failed = 0;
  std::int64_t saved = -1;
  std::string told;
  for (const SaveReport& report : result.reports) {
    told += report.error + report.notes;
    if (report.error.empty()) saved = report.step;
    if (report.error.empty()) continue;
    ++failed;
    EXPECT_THAT(report.error,
                AllOf(HasSubstr(fmt::format("[rank {}] ", rank)), HasSubstr(scratch.path("run")),
                      HasSubstr(reason), HasSubstr("was not saved")));
  }
  EXPECT_LE(failed, 1);
  // What tells only whether a parent can be synced, or what a name is, may fail unseen.
  const bool quiet = call == "sync_folder" || call == "kind_of" || call == "open_read" ||
                     call == "read" || call == "list";
  if (!quiet) {
    EXPECT_THAT(told, HasSubstr(reason));
  }
  EXPECT_GE(newest(scratch.path("run")), saved);
}

TEST(CheckpointFaults, AnyCallThatFailsOnAnyRankIsToldToAllAndHarmsNoTraining) {
  const std::vector<std::string> reasons = {"No space left on device", "Input/output error",
                                            "Disk quota exceeded"};
  std::size_t cases = 0;
  for (const int rank : {0, 2}) {
    Scratch scratch;
    Faults counting("");
    HookedDisk disk(std::ref(counting));
    const RunResult result = run(run_with(scratch.path("run"), disk, rank));
    EXPECT_THAT(result.reports, Each(Field(&SaveReport::error, "")));
    EXPECT_GE(counting.calls().size(), rank == 0 ? 10U : 5U);
    for (const auto& [call, count] : counting.calls()) {
      for (int number = 0; number < count; ++number) {
        // Of many calls of a kind the first, and every third.
        if (!long_tests() && number % 3 != 0) continue;
        expect_harmless(call, number, rank, reasons[cases++ % reasons.size()]);
      }
    }
  }
  EXPECT_GT(cases, 40U);
}

TEST(CheckpointFaults, ARankThatDoesNotSeeTheFolderIsNamed) {
  for (const bool stale : {false, true}) {
    Scratch scratch;
    HookedDisk other([](const std::string&, const std::string&) {});
    other.move_folder(scratch.path("run"), scratch.path("other"));
    SavedRun with = run_with(scratch.path("run"), other, 1);
    with.checkpoints.look_seconds = 0.3;
    if (stale) {  // from a save that was cut when the host had another part
      SavedRun before = run_of(1, 3, scratch.path("other"));
      before.checkpoints.file_bytes = with.checkpoints.file_bytes;
      before.save_after = {1};
      before.last = 1;
      run(before);
      std::filesystem::rename(scratch.path("other/step_00000001"),
                              scratch.path("other/step_00000001.partial"));
      write_bytes(scratch.path("other/step_00000001.partial/OWNER"), "another");
    }
    with.save_after = {1};
    const RunResult result = run(with);
    EXPECT_EQ(result.hash, hash_without_faults());
    ASSERT_THAT(result.reports, SizeIs(1));
    EXPECT_THAT(
        result.reports[0].error,
        AllOf(HasSubstr("[rank 1] "),
              HasSubstr(stale ? "is another file than the one that rank 0 has made" : "No such"),
              HasSubstr("put it on a file system that all hosts share")));
    EXPECT_THAT(contents(scratch.path("run")), IsEmpty());
  }
}

TEST(CheckpointFaults, ARankThatSeesAnotherCheckpointIsNamed) {
  Scratch scratch;
  for (const int tokens : {1, 2}) {
    const std::string folder = scratch.path(tokens == 1 ? "run" : "other");
    toy::with_engine(run_of(1, 3, folder).job, [&](Engine& engine, toy::Model&, Communicator&) {
      Checkpointer checkpointer(engine, {.folder = folder});
      checkpointer.save({{"tokens", tokens}});
      checkpointer.wait();
    });
  }
  HookedDisk other([](const std::string&, const std::string&) {});
  other.move_folder(scratch.path("run"), scratch.path("other"));
  SavedRun with = run_with(scratch.path("run"), other, 1);
  with.resume = scratch.path("run");
  EXPECT_THAT(error_of([&] { run(with); }),
              AllOf(HasSubstr("[rank 1] "), HasSubstr("is another checkpoint than the one that")));
}

TEST(CheckpointFaults, AFailureToReadOnOneRankIsOneOfAllAndLeavesTheInitialStates) {
  Scratch scratch;
  SavedRun saved = run_of(2, 3, scratch.path("run"));
  saved.checkpoints.file_bytes = 4800;
  saved.save_after = {1, 2};
  run(saved);
  for (const int rank : {0, 1}) {
    Faults faults("Input/output error");
    faults.fail_at("queue read", rank == 0 ? 0 : 1);
    HookedDisk disk(std::ref(faults));
    SavedRun with = run_with(scratch.path("run"), disk, rank);
    with.resume = "auto";
    with.last = 0;
    EXPECT_THAT(error_of([&] { run(with); }),
                AllOf(HasSubstr(fmt::format("[rank {}] ", rank)), HasSubstr("step_00000002/"),
                      HasSubstr("Input/output error"), HasSubstr("is not passed over")));
    EXPECT_TRUE(faults.happened());
    EXPECT_EQ(run(with).resumed_at, 2);  // the fault has passed
  }
}

TEST(CheckpointFaults, DamageOfTheLastBlockLeavesTheInitialStatesToo) {
  Scratch scratch;
  SavedRun with = large_run_of(2, 3, scratch.path("run"));
  with.save_after = {1};
  with.last = 1;
  run(with);
  const std::string path = scratch.path("run/step_00000001/moments/moment1.safetensors");
  std::string bytes = file_bytes(path);
  bytes.back() ^= 1;
  write_bytes(path, bytes);
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    Checkpointer checkpointer(engine, with.checkpoints);
    const std::uint64_t initial = engine.states().hash();
    EXPECT_THAT(error_of([&] { checkpointer.load(scratch.path("run")); }), HasSubstr(path));
    EXPECT_EQ(engine.states().hash(), initial);
  });
}

TEST(CheckpointFaults, DamageOfAFileWithoutTensorsIsFoundToo) {
  Scratch scratch;
  SavedRun with = run_of(2, 3, scratch.path("run"));
  with.checkpoints.weight_files = {{"config.json", "{}"}};
  with.save_after = {1, 2};
  run(with);
  write_bytes(scratch.path("run/step_00000002/weights/config.json"), "[]");
  with.save_after.clear();
  with.resume = "auto";
  const RunResult result = run(with);
  EXPECT_EQ(result.resumed_at, 1);
  EXPECT_THAT(result.passed_over, ElementsAre(HasSubstr("weights/config.json: offset 0")));
}

TEST(CheckpointFaults, AGoodCheckpointIsNeverPassedOverSinceItCouldNotBeOpened) {
  Scratch scratch;
  SavedRun saved = run_of(2, 3, scratch.path("run"));
  saved.save_after = {1, 2};
  run(saved);
  const auto before = contents(scratch.path("run"));
  Faults counting("");
  HookedDisk counted(std::ref(counting));
  SavedRun with = run_with(scratch.path("run"), counted, 0);
  with.save_after.clear();
  with.resume = "auto";
  with.last = 0;
  run(with);
  for (const auto& [call, count] : counting.calls()) {
    for (int number = 0; number < count; ++number) {
      SCOPED_TRACE(fmt::format("{} {}", call, number));
      Faults faults("Too many open files");
      faults.fail_at(call, number);
      HookedDisk disk(std::ref(faults));
      with.disk_of = [&disk](int of) { return of == 0 ? &disk : nullptr; };
      RunResult result;
      const std::string error = error_of([&] { result = run(with); });
      if (error == "no error") {
        EXPECT_EQ(result.resumed_at, 2);  // the fault was on the way to an older one
      } else {
        EXPECT_THAT(error, HasSubstr("Too many open files"));
      }
    }
  }
  EXPECT_EQ(contents(scratch.path("run")), before);
}

TEST(CheckpointFaults, ARankThatSeesTheFilesLateWaitsForThem) {
  for (const std::string part : {"run", "run/step_00000001.partial/moments", ""}) {
    SCOPED_TRACE(part);
    const bool stale = part.empty();
    Scratch scratch;
    std::atomic<int> looks{0};
    HookedDisk* late = nullptr;
    HookedDisk disk([&](const std::string& call, const std::string& path) {
      if (call != "kind_of" || !path.ends_with("OWNER") || ++looks > 3) return;
      if (stale) fail("{}: cannot look: Stale file handle", path);
      if (looks == 3) late->move_folder("", "");
    });
    late = &disk;
    if (!stale) disk.move_folder(scratch.path(part), scratch.path("other"));
    SavedRun with = run_with(scratch.path("run"), disk, 2);
    const RunResult result = run(with);
    EXPECT_EQ(result.hash, hash_without_faults());
    EXPECT_THAT(result.reports, Each(Field(&SaveReport::error, "")));
    EXPECT_GT(looks, 3);
  }
}

// A folder that somebody removes is not one that hosts do not share: rank 0 misses its own files.
TEST(CheckpointFaults, AFolderThatIsRemovedAtTheStartOfASaveIsSaidToBe) {
  Scratch scratch;
  std::atomic<int> looks{0};
  HookedDisk late([&](const std::string& call, const std::string& path) {
    if (call != "kind_of" || !path.ends_with("OWNER") || ++looks != 2) return;
    std::filesystem::remove_all(scratch.path("run"));
  });
  late.move_folder(scratch.path("run"), scratch.path("other"));
  SavedRun with = run_with(scratch.path("run"), late, 1);
  with.checkpoints.look_seconds = 1000;
  with.save_after = {1};
  const RunResult result = run(with);
  EXPECT_EQ(result.hash, hash_without_faults());
  ASSERT_THAT(result.reports, SizeIs(1));
  EXPECT_THAT(
      result.reports[0].error,
      AllOf(HasSubstr("[rank 0] "), HasSubstr("OWNER: No such file or directory, though this rank "
                                              "has just made it: another process removes files")));
}

TEST(CheckpointFaults, FilesAreRemovedOnceAllRanksHaveClosedTheirs) {
  Scratch scratch;
  int open = -1;
  HookedDisk first([&](const std::string& call, const std::string& path) {
    if (call == "rename" && path.ends_with(".partial"))
      open = open_files_below(scratch.path("run"));
  });
  Faults faults("Too many open files");
  faults.fail_at("open_write", 0);
  HookedDisk failing(std::ref(faults));
  SavedRun with = run_with(scratch.path("run"), failing, 2);
  with.disk_of = [&](int of) { return of == 0 ? &first : of == 2 ? &failing : nullptr; };
  with.save_after = {1};
  const RunResult result = run(with);
  ASSERT_THAT(result.reports, SizeIs(1));
  EXPECT_THAT(result.reports[0].error, HasSubstr("Too many open files"));
  EXPECT_EQ(open, 0);
}

TEST(CheckpointFaults, ADiskThatTakesLongerThanRanksMayIsWaitedFor) {
  using std::chrono::milliseconds;
  Scratch scratch;
  ToldLines lines;
  std::atomic<bool> loads{false};
  HookedDisk slow([&](const std::string& call, const std::string& path) {
    const bool waits = call == "free_bytes" || (call == "rename" && path.ends_with(".partial")) ||
                       (call == "open_read" && loads.exchange(false));
    if (waits) std::this_thread::sleep_for(milliseconds(1500));
  });
  SavedRun with = run_with(scratch.path("run"), slow, 0);
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    CheckpointOptions options = with.checkpoints;
    if (communicator.rank() == 0) options.disk = &slow;
    Checkpointer checkpointer(engine, options);
    const auto before = communicator.wait_limits();
    communicator.set_wait_limits(
        {.warning = milliseconds(500), .timeout = milliseconds(1000), .warn = lines.adder()});
    checkpointer.save({});
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->error, "");
    if (communicator.rank() == 0) loads = true;
    EXPECT_TRUE(checkpointer.load("auto"));
    EXPECT_EQ(communicator.wait_limits()->timeout, milliseconds(1000));
    communicator.set_wait_limits(*before);
  });
  for (const char* const phase : {"save", "load"}) {
    EXPECT_THAT(lines.all(), ::testing::Contains(::testing::ContainsRegex(fmt::format(
                                 ", {0}: waiting for 0.5 s for rank 0 .*; no timeout: a disk "
                                 "decides how long a {0} takes$",
                                 phase))));
  }
}

TEST(CheckpointFaults, ADiskThatIsSlowOnOneRankHoldsTheSaveUpAndNothingElse) {
  Scratch scratch;
  HookedDisk slow([](const std::string& call, const std::string&) {
    if (call == "queue write" || call == "sync")
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  SavedRun with = run_with(scratch.path("run"), slow, 1);
  with.save_after = {1, 2, 3};
  const RunResult result = run(with);
  EXPECT_EQ(result.hash, hash_without_faults());
  ASSERT_THAT(result.reports, SizeIs(3));
  EXPECT_THAT(result.reports, Each(Field(&SaveReport::error, "")));
}

TEST(CheckpointFaults, StatesThatAreNotFiniteAreNotSavedOverGoodOnes) {
  const Scratch scratch;
  std::vector<std::string> errors(2);
  const auto save = [&](float value, SaveStates states) {
    local::run(2, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Engine engine(communicator, *device, {.stage = 3});
      engine.add_unit("layer", {{"weight", {70, 3}}});
      engine.seal();
      std::vector<float> values(210, 0.5F);
      values[201] = value;
      engine.states().write("layer.weight", StateKind::parameter, View::of(std::span(values)));
      Checkpointer checkpointer(engine, {.folder = scratch.path("run"), .states = states});
      checkpointer.save({});
      checkpointer.wait();
      errors[static_cast<std::size_t>(communicator.rank())] = checkpointer.report()->error;
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  EXPECT_EQ(save(1.5F, SaveStates::finite), "");
  const auto good = contents(scratch.path("run"));
  for (const float value : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
    EXPECT_THAT(save(value, SaveStates::finite),
                HasSubstr("parameter of tensor \"layer.weight\" is NaN or infinite, first in "
                          "element 201: such states are not saved"));
    EXPECT_EQ(contents(scratch.path("run")), good);
    EXPECT_EQ(save(value, SaveStates::any), "");
    EXPECT_EQ(save(1.5F, SaveStates::finite), "");
  }
  EXPECT_EQ(save(std::numeric_limits<float>::max(), SaveStates::finite), "");
}

}  // namespace
}  // namespace zero::testing
