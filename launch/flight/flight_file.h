// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "engine/schedule.h"
#include "files/disk_calls.h"
#include "launch/flight/flight_layout.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_state.h"
#include "launch/flight/mapped_file.h"

namespace zero {

/// How a flight file is made.
struct FlightFileOptions {
  flight::Sizes sizes{};
  mode_t mode = 0644;
  std::string option{kFlightFolderOption};  ///< names the folder: for messages
  std::string without = ", or \"none\"";    ///< ends the advice to give another folder
};

/// A rank's flight file: what the rank does, in memory that other processes map and that outlasts
/// a kill. Holds published facts (step, phase, last unit of compute), a ring of records, the names
/// in use, last words and a stack. Written by the rank's host thread, except where a function says
/// otherwise, without locks, and without system calls after create() but for the phase that begins
/// the first step, which may remove what earlier runs have left. FlightReader reads it.
class FlightFile {
 public:
  /// The number of a record; 0: none.
  using Ticket = std::uint64_t;

  /// Creates the file in place of a flight file that is there. An empty path: a file in memory,
  /// without a name, which other processes find as /proc/PID/fd/N. `run` is the same for all ranks
  /// of a run. Takes all its room on the disk at once. Throws zero::Error, naming the option, if
  /// the file cannot be written, is no flight file, or is that of a run that goes on.
  static FlightFile create(const std::string& path, int rank, int world, std::uint64_t run = 0,
                           const FlightFileOptions& options = {});

  /// Leaves a link to the file at `place` (flight_place.h), where people look for it and nothing
  /// is. `obstacle`: why the file is without a name, if it was to have one. Throws zero::Error, and
  /// removes the file, if the link cannot be written.
  void link_at(const std::string& place, std::string obstacle);

  /// The run's first step, or a good end behind "start", removes what earlier runs have left beside
  /// the folder of this one. For the first rank of each host.
  void remove_earlier_runs() { removes_earlier_ = true; }

  /// The open file: N of /proc/PID/fd/N.
  int descriptor() const { return file_.get(); }
  const std::string& path() const { return path_; }    ///< empty: a file in memory
  const std::string& place() const { return place_; }  ///< path(), or that of the link
  const std::string& obstacle() const { return obstacle_; }
  /// The file's name for other processes of this host.
  std::string address() const;
  std::size_t bytes() const { return map_.bytes(); }
  /// A copy of the file as it is now, to replace the link; nothing if the file is in its place.
  std::optional<FlightCopy> copy() const;

  /// A phase begins. Later records are of this step; -1: before the first.
  void phase(std::int64_t step, std::string_view name);
  void compute(std::string_view unit, Phase phase);
  void mean_step(double seconds);
  /// The rank has ended in good order.
  void end() noexcept;
  /// Whether the first step has begun.
  bool has_come_to_a_step() const { return has_stepped_; }
  /// end(), and removes the file, the link to it and, once they are empty, its place's folders.
  void withdraw() noexcept;
  /// The same of a run that has ended well.
  void end_and_remove() noexcept;

  static constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};
  /// Adds a group, whose collectives are counted from 1; returns kNoGroup if there is no room.
  /// `ranks`: of the world, in the group's order; empty: unknown.
  std::uint32_t add_group(std::string_view name, const std::vector<int>& ranks);
  /// Names a group that was added without a name.
  void name_group(std::uint32_t group, std::string_view name, const std::vector<int>& ranks);

  struct Submission {
    flight::Kind kind = flight::Kind::collective;  ///< or host_call
    std::uint8_t operation = 0;                    ///< of a collective
    std::uint32_t group = kNoGroup;
    std::string_view name{};  ///< purpose of a collective, or name of a host call
    std::int64_t bytes = 0;
    bool disk_decides = false;  ///< as CallContext has it
  };
  /// Records the next collective of its group; returns 0 if that is kNoGroup.
  Ticket submit(const Submission& submission);
  /// The collective began, or ended, at `time`. Does nothing once newer records have taken its
  /// place. Any thread.
  void started(Ticket ticket, std::int64_t time) noexcept;
  void ended(Ticket ticket, std::int64_t time) noexcept;
  /// When the collective was submitted; 0 once newer records have taken its place. Any thread.
  std::int64_t enqueued(Ticket ticket) const noexcept;

  /// The rank goes on, in a way that has no record. Any thread.
  void goes_on() noexcept { publish(now()); }
  /// Of this process. Publishes nothing, in that changed() stays. Any thread, one at a time.
  void disk_calls(const files::DiskCalls& calls) noexcept;

  /// What others read once the rank has ended; texts are cut where there is no room. Stores and
  /// copies bytes, no more: any thread, one at a time; also in a signal handler.
  void write_last_words(const LastWords& words) noexcept;
  void write_stack(std::string_view text) noexcept;

  /// Nanoseconds of CLOCK_MONOTONIC.
  static std::int64_t now() noexcept;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  FlightFile(Descriptor file, MappedFile map, std::string path, const FlightFileOptions& options);
  /// The number of a name, plus 1, as records store it.
  std::uint64_t name_number(std::string_view name);
  flight::Group& group_at(std::uint32_t group) const;
  flight::Record& slot(Ticket ticket) const;
  /// The record, if it is still there; else null.
  flight::Record* find(Ticket ticket) const noexcept;
  Ticket add(const flight::Record& record);
  void set_ranks(flight::Group& group, const std::vector<int>& ranks);
  /// Returns how many bytes there was room for.
  std::uint32_t put_text(std::uint64_t offset, std::uint32_t room, std::string_view text) noexcept;
  void publish(std::int64_t time) noexcept;
  void come_to_a_step() noexcept;

  Descriptor file_;
  MappedFile map_;
  std::string path_;
  std::string place_;
  std::string obstacle_{};
  std::string option_;
  flight::Sizes sizes_;
  flight::Offsets offsets_;
  flight::Header* header_;
  std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>> names_{};
  std::uint32_t ranks_used_ = 0;
  std::int64_t step_ = -1;
  bool removes_earlier_ = false;
  bool has_stepped_ = false;
  bool has_started_ = false;  // a phase behind "start" has begun
};

}  // namespace zero
