// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/nanoseconds.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "launch/config/train_config.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "launch/flight/run_folders.h"
#include "launch/flight/visible_ranks.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

/// What ranks of a run agree on.
struct Drawn {
  std::int64_t time;  ///< of the first rank's host, or behind the last run in a host's folder
  std::uint64_t run;  ///< a number that two runs hardly share
};

/// The same on every rank. Collective.
Drawn draw_run(const FlightFolder& folder, Communicator& ranks, Device& device) {
  std::random_device random;
  const bool is_first = ranks.rank() == 0;
  // Of all ranks the most: 0 on all but one is that one's.
  std::array<std::int64_t, 3> drawn{is_first ? time_of_day() : 0, is_first ? random() : 0,
                                    is_first ? random() : 0};
  if (const auto runs = run_folders(folder.path); ranks.local_rank() == 0 && !runs.empty()) {
    constexpr std::int64_t kMicrosecond = 1'000;  // names have no shorter times
    const std::string newest = fs::path(runs.front()).filename().string();
    drawn[0] = std::max(drawn[0], time_of_run_folder(newest) + kMicrosecond);
  }
  host_all_reduce(ranks, device, View::of(std::span<std::int64_t>(drawn)), ReduceOp::max,
                  {folder.option, {}});
  return {drawn[0],
          static_cast<std::uint64_t>(drawn[1]) << 32 | static_cast<std::uint64_t>(drawn[2])};
}

/// Flight files of ended runs stay in memory for so long, for zero_doctor.
constexpr std::int64_t kKept = std::int64_t{7} * 24 * 3600 * 1'000'000'000;

/// Whether the file is this user's. Another user's may have the name, and be cut while it is read.
bool is_own_file(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid();
}

/// Nanoseconds since the rank of a flight file last published anything. Of a file that cannot be
/// read, such as one of another version: since the file was made or last written.
std::int64_t age_of(const std::string& path) {
  std::int64_t age = time_of_day();
  const std::string obstacle = failure_of([&] {
    const FlightReader file(path);
    age -= file.changed() + file.wall_clock_offset();
  });
  if (obstacle.empty()) return age;
  const auto written = fs::file_time_type::clock::now() - fs::last_write_time(path);
  return std::chrono::nanoseconds(written).count();
}

/// Removes files in memory to which no link may lead: their folder was removed, or later runs in it
/// were on other hosts.
void remove_old_files(const std::string& memory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(memory, error)) {
    const std::string path = entry.path().string();
    if (!is_path_in_memory(path) || !is_own_file(path)) continue;
    failure_of([&] {  // another rank may have removed it
      if (age_of(path) > kKept) remove_ended_flight(path);
    });
  }
}

FlightFile create_in_memory(const FlightMemory& memory, const std::string& place,
                            const FlightFolder& folder, const Communicator& ranks,
                            std::uint64_t run) {
  const int rank = ranks.rank();
  std::optional<FlightFile> file;
  const auto create_with_name = [&] {
    return failure_of([&] {
      ZERO_CHECK(files::medium_of_type(memory.type_of(memory.folder)) == files::Medium::memory,
                 "{} is no file system in memory", memory.folder);
      file.emplace(
          FlightFile::create(path_in_memory(memory.folder, run, rank), rank, ranks.size(), run,
                             {.mode = 0600, .option = folder.option, .without = folder.without}));
    });
  };
  const bool is_first = ranks.local_rank() == 0;
  if (is_first) remove_old_files(memory.folder);
  std::string obstacle = create_with_name();
  if (!file && !is_first) {  // the first rank may not have removed yet what took the room
    remove_old_files(memory.folder);
    obstacle = create_with_name();
  }
  if (!file)
    file.emplace(FlightFile::create("", rank, ranks.size(), run, {.option = folder.option}));
  file->link_at(place, std::move(obstacle));
  return std::move(*file);
}

/// Makes the run's own folder and the one that it is in.
void make_folders(const std::string& of_run, const FlightFolder& folder) {
  std::error_code error;
  bool is_new = false;
  const auto check = [&](const std::string& made) {
    ZERO_CHECK(!error, "{}: cannot create the folder {}: {}; give one that you may write to{}",
               folder.option, made, error.message(), folder.without);
  };
  for (int tries = 0; tries < 3; ++tries) {  // another run's end may remove the empty outer one
    fs::create_directories(folder.path, error);
    check(folder.path);
    is_new = fs::create_directory(of_run, error);
    if (error != std::errc::no_such_file_or_directory) break;
  }
  check(of_run);
  // Whoever may clear the folder may clear that one.
  if (is_new) fs::permissions(of_run, fs::status(folder.path, error).permissions(), error);
}

/// Throws if another run goes on in the folder. Behind the making of the own file: of two runs that
/// start at once, one or both are refused.
void check_other_runs(const FlightFolder& folder, const std::string& of_run) {
  for (const std::string& other : run_folders(folder.path)) {
    if (fs::path(other).filename() == fs::path(of_run).filename()) continue;
    for (const std::string& place : flight_files_in(other)) {
      if (use_of_flight(place) == FlightUse::goes_on) check_flight_place(place, folder.option);
    }
  }
}

/// Of earlier runs that did not come to a step, the last one's files stay, beside those of a run
/// that did; what a start has left that was killed before it had files goes.
void remove_old_starts(const std::string& folder, const std::string& of_run) {
  int starts = 0;
  for (const std::string& other : run_folders(folder)) {
    if (fs::path(other).filename() >= fs::path(of_run).filename()) continue;
    const std::vector<std::string> files = flight_files_in(other);
    const bool tells = std::ranges::any_of(files, std::not_fn(is_half_made));
    if (tells && (has_come_to_a_step(other) || ++starts == 1)) continue;
    remove_ended_run(other, LinksElsewhere::stay);
  }
}

/// Puts the copy in its place. Returns whether it is there, or not needed.
bool put(const FlightCopy& copy) {
  const auto link = FlightLink::read(copy.place);
  std::error_code error;
  const bool is_gone = !link && !fs::exists(fs::symlink_status(copy.place, error));
  if (!is_gone && (!link || link->path != copy.of)) return true;
  // A run of another host that ended well, and knew nothing of this one, may have removed the link.
  if (is_gone) fs::create_directories(fs::path(copy.place).parent_path(), error);
  const std::string part = part_of(copy.place);
  const Descriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0) return false;  // another rank may be writing it
  try {
    write_whole(file.get(), copy.bytes, kFlightFolderOption, part);
  } catch (const std::exception&) {
    ::unlink(part.c_str());
    return false;
  }
  // A server without room says so here.
  if (::fsync(file.get()) != 0 || std::rename(part.c_str(), copy.place.c_str()) != 0) {
    ::unlink(part.c_str());
    return false;
  }
  if (is_path_in_memory(copy.of)) ::unlink(copy.of.c_str());
  return true;
}

bool put_all(const std::vector<FlightCopy>& copies) {
  bool all = true;
  for (const FlightCopy& copy : copies) {
    try {
      all = put(copy) && all;
    } catch (const std::exception&) {  // the others may have more luck
      all = false;
    }
  }
  return all;
}

}  // namespace

std::string flight_folder(const TrainConfig& config) {
  const std::string& given = config.run.flight_folder;
  if (given == "none") return "";
  if (!given.empty()) return given;
  if (const std::string& checkpoints = config.checkpoints.folder; !checkpoints.empty()) {
    return (fs::path(checkpoints) / kFlightInCheckpoints).string();
  }
  const std::string& log = config.run.log;
  std::error_code error;
  const bool is_file = fs::is_regular_file(log, error) || !fs::exists(log, error);
  return log.empty() || !is_file ? "" : log + ".flight";
}

FlightFile create_flight_file(const FlightFolder& folder, Communicator& ranks, Device& device,
                              const FlightMemory& memory) {
  const Drawn drawn = draw_run(folder, ranks, device);
  const std::string of_run =
      folder.path.empty() ? "" : (fs::path(folder.path) / run_folder_name(drawn.time, drawn.run));
  const FlightFileOptions options{.option = folder.option, .without = folder.without};
  const bool is_first = ranks.local_rank() == 0;
  std::optional<FlightFile> file;
  const auto create = [&](const std::string& place) {
    file.emplace(!place.empty() && files::may_need_server(memory.type_of(folder.path))
                     ? create_in_memory(memory, place, folder, ranks, drawn.run)
                     : FlightFile::create(place, ranks.rank(), ranks.size(), drawn.run, options));
  };
  try {
    agree(ranks, device, folder.option, [&] {
      if (of_run.empty()) return create("");
      make_folders(of_run, folder);
      create((fs::path(of_run) / flight_file_name(ranks.rank())).string());
      if (!is_first) return;
      check_other_runs(folder, of_run);
      file->remove_earlier_runs();
    });
  } catch (...) {  // another rank has none: nothing has begun that a file could tell of
    if (file) file->withdraw();
    if (!of_run.empty()) remove_empty_run(of_run);
    throw;
  }
  if (is_first && !of_run.empty()) {
    failure_of([&] { remove_old_starts(folder.path, of_run); });  // what stays hurts nobody
  }
  return std::move(*file);
}

std::string flight_warning(const FlightFile& own, Communicator& ranks, Device& device) {
  std::int64_t any = own.obstacle().empty() ? 0 : 1;
  host_all_reduce(ranks, device, View::of(std::span(&any, 1)), ReduceOp::max, {"flight files", {}});
  if (any == 0) return "";
  const auto obstacles = all_gather_texts(ranks, device, own.obstacle(), "flight files");
  if (ranks.rank() != 0) return "";
  const auto first =
      std::ranges::find_if(obstacles, [](const std::string& text) { return !text.empty(); });
  return fmt::format(
      "flight files: {} of {} are without a name in their hosts' memory: if all "
      "ranks of a host are killed at once, they are lost (rank {}: {})",
      std::ranges::count_if(obstacles, [](const std::string& text) { return !text.empty(); }),
      obstacles.size(), first - obstacles.begin(), *first);
}

bool keep_copies(std::vector<FlightCopy> copies, std::chrono::milliseconds patience) noexcept {
  if (copies.empty()) return true;
  try {
    auto done = std::make_shared<std::promise<bool>>();
    std::future<bool> result = done->get_future();
    std::thread([copies = std::move(copies), done] { done->set_value(put_all(copies)); }).detach();
    return result.wait_for(patience) == std::future_status::ready && result.get();
  } catch (const std::exception&) {  // no thread, no memory: the links stay
    return false;
  }
}

void keep_flight_files(const FlightFile& own, const VisibleRanks* peers) noexcept {
  try {
    std::vector<FlightCopy> copies;
    if (auto copy = own.copy()) copies.push_back(std::move(*copy));
    const auto folder = fs::path(own.place()).parent_path();
    const bool linked = !copies.empty() && peers != nullptr;
    for (int i = 0; linked && i < peers->count(); ++i) {
      const FlightReader* const file = peers->file(i);
      if (file == nullptr || i == peers->self() || !peers->ended(i) || peers->read(i).over)
        continue;
      copies.push_back({.place = (folder / flight_file_name(file->rank())).string(),
                        .of = file->path(),
                        .bytes = file->whole()});
    }
    keep_copies(std::move(copies), kForCopies);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory: the links stay
  }
}

}  // namespace zero
