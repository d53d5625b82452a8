// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/flight_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "launch/faults/flight_file.h"
#include "launch/faults/flight_folder.h"
#include "launch/faults/flight_place.h"
#include "launch/faults/flight_reader.h"
#include "launch/faults/host_ranks.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

/// Whether the place needs no copy any more.
bool put(const FlightCopy& copy) {
  const auto link = FlightLink::read(copy.place);
  if (!link || link->path != copy.of) return true;
  const std::string part = part_of(copy.place);
  const Descriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0) return false;  // another rank may be at it
  try {
    write_whole(file.get(), copy.bytes, "run.flight_folder", part);
  } catch (const std::exception&) {
    ::unlink(part.c_str());
    return false;
  }
  // A server says here that it has no room.
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

void keep_flight_files(const FlightFile& own, const HostRanks* peers) noexcept {
  try {
    std::vector<FlightCopy> copies;
    if (auto copy = own.copy()) copies.push_back(std::move(*copy));
    const auto folder = std::filesystem::path(own.place()).parent_path();
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
