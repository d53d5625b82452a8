// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/flight_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <system_error>

#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "launch/config/train_config.h"

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

/// A message of FlightFile, which names zero_train's key, for a program with another option.
std::string under_option(std::string message, const std::string& option) {
  const std::string key = FlightFolder().option;
  for (std::size_t at = message.find(key); at != std::string::npos;
       at = message.find(key, at + option.size())) {
    message.replace(at, key.size(), option);
  }
  return message;
}

/// Those of ranks from `world` on, which a run of more ranks has left.
void remove_files_from(const fs::path& folder, int world) {
  int rank = world;
  while (FlightFile::remove_ended((folder / flight_file_name(rank)).string())) ++rank;
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

FlightFile create_flight_file(const FlightFolder& folder, Communicator& ranks, Device& device) {
  const std::uint64_t run = draw_run(folder, ranks, device);
  std::optional<FlightFile> file;
  agree(ranks, device, folder.option, [&] {
    std::string path;
    if (!folder.path.empty()) {
      std::error_code error;
      fs::create_directories(folder.path, error);
      ZERO_CHECK(!error, "{}: cannot create the folder {}: {}; give one that you may write to{}",
                 folder.option, folder.path, error.message(), folder.without);
      path = (fs::path(folder.path) / flight_file_name(ranks.rank())).string();
    }
    try {
      file.emplace(FlightFile::create(path, ranks.rank(), ranks.size(), run));
    } catch (const Error& error) {
      fail("{}", under_option(error.what(), folder.option));
    }
    if (ranks.rank() == 0 && !folder.path.empty()) remove_files_from(folder.path, ranks.size());
  });
  return std::move(*file);
}

FlightFile create_flight_file(const TrainConfig& config, Communicator& ranks, Device& device) {
  return create_flight_file({flight_folder(config)}, ranks, device);
}

}  // namespace zero
