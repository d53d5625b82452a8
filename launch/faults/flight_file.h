// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "launch/faults/flight_layout.h"

namespace zero {

/// Bytes of memory shared with other processes through a file; unmapped at the end.
class MappedFile {
 public:
  /// Maps `bytes` of the open file. Throws zero::Error naming `path`.
  enum class Access : std::uint8_t { read, write };
  MappedFile(int file, std::size_t bytes, Access access, const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::byte* at(std::size_t offset) const { return begin_ + offset; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A rank's flight file: what the rank does, in memory that others map and that stays when the
/// process is killed. Holds published facts (step, phase, last unit of compute), a ring of records,
/// the names in use, last words and a stack. Written by the rank's host thread, except where a
/// function says otherwise; no lock, and no system call after create(). FlightReader reads it.
class FlightFile {
 public:
  /// Of a record; 0: none.
  using Ticket = std::uint64_t;

  /// Creates the file, and replaces a flight file that is there; an empty path: a file in memory,
  /// without a name, which others find as /proc/PID/fd/N. `run` is the same for all ranks of a run.
  /// All room on the disk is taken at once. Throws zero::Error, naming run.flight_folder, if the
  /// file cannot be written, is no flight file, or is that of a run that goes on.
  static FlightFile create(const std::string& path, int rank, int world, std::uint64_t run = 0,
                           const flight::Sizes& sizes = {});

  /// Of the open file, for /proc/PID/fd/N.
  int descriptor() const { return file_.get(); }
  /// Empty: a file in memory.
  const std::string& path() const { return path_; }
  std::size_t bytes() const { return map_.size(); }

  // Published facts.
  void phase(std::int64_t step, std::string_view name);
  void compute(std::string_view unit, std::uint8_t phase);
  void mean_step(double seconds);
  /// The rank has ended in good order: others read so from now on.
  void end();
  /// end(), and removes the file, and its folder once that is empty. Any thread.
  void end_and_remove() noexcept;

  // Groups and their collectives.
  static constexpr std::uint32_t kNoGroup = ~0U;
  /// A new group, whose collectives are counted from 1. `ranks`: world ranks; empty: unknown.
  /// kNoGroup: the table is full.
  std::uint32_t add_group(std::string_view name, const std::vector<int>& ranks);
  /// Names a group that was added without a name.
  void name_group(std::uint32_t group, std::string_view name, const std::vector<int>& ranks);
  /// Whether the group has a name.
  bool named(std::uint32_t group) const;
  struct Submission {
    flight::Kind kind = flight::Kind::collective;
    std::uint8_t operation = 0;
    std::uint32_t group = 0;
    std::string_view name{};  ///< purpose, or the name of a host call
    std::int64_t bytes = 0;
    std::uint16_t stream = 0;
  };
  Ticket submit(const Submission& submission);
  /// The collective of this ticket begins, or ends, at `time`. Any thread; nothing if newer records
  /// have taken the place.
  void started(Ticket ticket, std::int64_t time) noexcept;
  void ended(Ticket ticket, std::int64_t time) noexcept;

  /// Texts for whoever reads the file later; cut where there is no room. Any thread, one at a time.
  void write_last_words(std::string_view text) noexcept;
  void write_stack(std::string_view text) noexcept;

  /// Nanoseconds of CLOCK_MONOTONIC.
  static std::int64_t now() noexcept;

 private:
  FlightFile(Descriptor file, MappedFile map, std::string path, const flight::Sizes& sizes);
  std::uint32_t name_id(std::string_view name);
  Ticket add_record(flight::Record record) noexcept;
  void set_ranks(flight::Group& group, const std::vector<int>& ranks);
  void write_text(std::size_t offset, std::uint32_t room, std::uint32_t& length,
                  std::string_view text) noexcept;

  Descriptor file_;
  MappedFile map_;
  std::string path_;
  flight::Sizes sizes_;
  flight::Header* header_;
  std::map<std::string, std::uint32_t, std::less<>> ids_{};  // of names
  std::uint32_t ranks_used_ = 0;
};

}  // namespace zero
