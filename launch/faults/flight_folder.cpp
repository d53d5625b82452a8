// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/flight_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "launch/config/train_config.h"
#include "launch/faults/flight_place.h"
#include "launch/faults/flight_reader.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

/// A number that two runs hardly share; the first rank's, on every rank.
std::uint64_t draw_run(const FlightFolder& folder, Communicator& ranks, Device& device) {
  std::random_device random;
  auto run = static_cast<std::int64_t>(std::uint64_t{random()} << 32 | random());
  host_broadcast(ranks, device, View::of(std::span<std::int64_t>(&run, 1)), 0, {folder.option, {}});
  return static_cast<std::uint64_t>(run);
}

/// Flight files of ended runs stay in memory for so long, for a doctor.
constexpr std::int64_t kKept = std::int64_t{7} * 24 * 3600 * 1'000'000'000;

/// Others may name files of theirs as this user's, and cut them while they are read.
bool is_own_file(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid();
}

/// Those in memory that no link may lead to any more: their folder was removed, or later runs of
/// that were on other hosts.
void remove_old_files(const std::string& memory) {
  std::timespec wall{};
  std::timespec_get(&wall, TIME_UTC);
  const std::int64_t now = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(memory, error)) {
    const std::string path = entry.path().string();
    if (!is_path_in_memory(path) || !is_own_file(path)) continue;
    failure_of([&] {  // another rank may have removed it, or is about to write it
      const FlightReader file(path);
      if (now - file.changed() - file.wall_clock_offset() > kKept) remove_ended_flight(path);
    });
  }
}

/// A message of FlightFile, which names zero_train's key, for a program with another option.
std::string under_option(std::string message, const std::string& option) {
  const std::string key = FlightFolder().option;
  for (std::size_t at = message.find(key); at != std::string::npos;
       at = message.find(key, at + option.size())) {
    message.replace(at, key.size(), option);
  }
  return message;
}

FlightFile create_in_memory(const FlightMemory& memory, const std::string& place,
                            const std::string& option, int rank, int world, std::uint64_t run) {
  clear_flight_place(place);
  remove_old_files(memory.folder);
  std::optional<FlightFile> file;
  std::string obstacle = failure_of([&] {
    ZERO_CHECK(files::medium_of_type(memory.type_of(memory.folder)) == files::Medium::memory,
               "{} is no file system in memory", memory.folder);
    file.emplace(
        FlightFile::create(path_in_memory(memory.folder, run, rank), rank, world, run, {}, 0600));
  });
  if (!file) file.emplace(FlightFile::create("", rank, world, run));
  file->link_at(place, under_option(std::move(obstacle), option));
  return std::move(*file);
}

/// Those of ranks from `world` on, which a run of more ranks has left.
void remove_files_from(const fs::path& folder, int world) {
  int rank = world;
  while (remove_ended_flight((folder / flight_file_name(rank)).string())) ++rank;
}

}  // namespace

std::string flight_folder(const TrainConfig& config) {
  const std::string& given = config.run.flight_folder;
  if (given == "none") return "";
  if (!given.empty()) return given;
  if (const std::string& checkpoints = config.checkpoints.folder; !checkpoints.empty()) {
    return (fs::path(checkpoints) / "flight").string();
  }
  const std::string& log = config.run.log;
  std::error_code error;
  const bool is_file = fs::is_regular_file(log, error) || !fs::exists(log, error);
  return log.empty() || !is_file ? "" : log + ".flight";
}

std::string flight_file_name(int rank) { return fmt::format("rank_{:05}.flight", rank); }

FlightFile create_flight_file(const FlightFolder& folder, Communicator& ranks, Device& device,
                              const FlightMemory& memory) {
  const std::uint64_t run = draw_run(folder, ranks, device);
  std::optional<FlightFile> file;
  const auto create = [&] {
    if (folder.path.empty()) {
      file.emplace(FlightFile::create("", ranks.rank(), ranks.size(), run));
      return;
    }
    std::error_code error;
    fs::create_directories(folder.path, error);
    ZERO_CHECK(!error, "{}: cannot create the folder {}: {}; give one that you may write to{}",
               folder.option, folder.path, error.message(), folder.without);
    const std::string place = (fs::path(folder.path) / flight_file_name(ranks.rank())).string();
    try {
      file.emplace(
          files::may_need_server(memory.type_of(folder.path))
              ? create_in_memory(memory, place, folder.option, ranks.rank(), ranks.size(), run)
              : FlightFile::create(place, ranks.rank(), ranks.size(), run));
    } catch (const Error& failure) {
      fail("{}", under_option(failure.what(), folder.option));
    }
    if (ranks.rank() == 0) remove_files_from(folder.path, ranks.size());
  };
  try {
    agree(ranks, device, folder.option, create);
  } catch (...) {  // another rank has none: nothing has begun that a file could tell of
    if (file) file->end_and_remove();
    throw;
  }
  return std::move(*file);
}

std::string flight_warning(const FlightFile& own, Communicator& ranks, Device& device) {
  const auto obstacles = all_gather_texts(ranks, device, own.obstacle(), "run.flight_folder");
  const auto first =
      std::ranges::find_if(obstacles, [](const std::string& text) { return !text.empty(); });
  if (ranks.rank() != 0 || first == obstacles.end()) return "";
  return fmt::format(
      "flight files: {} of {} are without a name in their hosts' memory: if all "
      "ranks of a host are killed at once, they are lost (rank {}: {})",
      std::ranges::count_if(obstacles, [](const std::string& text) { return !text.empty(); }),
      obstacles.size(), first - obstacles.begin(), *first);
}

FlightFile create_flight_file(const TrainConfig& config, Communicator& ranks, Device& device,
                              const FlightMemory& memory) {
  return create_flight_file(FlightFolder{flight_folder(config)}, ranks, device, memory);
}

}  // namespace zero
