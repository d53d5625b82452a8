// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/message_text.h"
#include "base/nanoseconds.h"
#include "collectives/operation.h"
#include "engine/schedule.h"

namespace zero {
namespace {

/// Of a group's collectives; the files of no run come to it.
constexpr std::uint64_t kLargestNumber = std::numeric_limits<std::int64_t>::max();

/// The most open collectives that a state names: the oldest, for which later ones wait.
constexpr std::ptrdiff_t kMostOpen = 1024;

bool is_collective(const flight::Record& record) {
  return kind_of(record) == flight::Kind::collective || kind_of(record) == flight::Kind::host_call;
}

/// Names in messages are for people: printable, whatever a file holds.
std::string printable_name(const char* begin, std::size_t most) {
  return printable_line({begin, ::strnlen(begin, most)}, most);
}

/// A time of a file; 0 if no rank can have written it.
constexpr std::int64_t time_in(std::int64_t time) {
  return time < 0 || time > flight::kLatest ? 0 : time;
}

std::string compute_text(std::uint64_t phase, const std::string& unit) {
  if (phase > static_cast<std::uint64_t>(Phase::recompute)) return unit;
  return fmt::format("{} {}", name_of(static_cast<Phase>(phase)), unit);
}

MappedFile map_whole(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  ZERO_CHECK(file.get() >= 0, "{}: cannot be read: {}", path, std::strerror(errno));
  struct stat status {};
  ZERO_CHECK(::fstat(file.get(), &status) == 0, "{}: cannot be read: {}", path,
             std::strerror(errno));
  ZERO_CHECK(S_ISREG(status.st_mode), "{}: is no regular file, expected a rank's flight file",
             path);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  ZERO_CHECK(bytes >= sizeof(flight::Header), "{}: has {} bytes, too few for a flight file", path,
             bytes);
  return {file.get(), bytes, MappedFile::Access::read, path};
}

/// Checks what a reader relies on.
flight::Sizes checked_sizes(const MappedFile& map, const std::string& path) {
  const flight::Header& header = *map.at<const flight::Header>(0);
  ZERO_CHECK(header.magic == flight::kMagic,
             "{}: is no flight file: it does not begin as those do; give the folder of a run's "
             "flight files (run.flight_folder)",
             path);
  ZERO_CHECK(header.version == flight::kVersion,
             "{}: is a flight file of version {}; this program reads version {}: use the "
             "zero_doctor of the program that wrote it",
             path, header.version, flight::kVersion);
  const flight::Sizes sizes = header.sizes;
  for (const std::uint32_t each :
       {sizes.records, sizes.names, sizes.groups, sizes.group_ranks, sizes.words, sizes.stack}) {
    ZERO_CHECK(each <= flight::kMost, "{}: is damaged: room for {} entries, expected {} at most",
               path, each, flight::kMost);
  }
  const std::uint64_t expected = flight::Offsets(sizes).end;
  ZERO_CHECK(map.bytes() >= expected, "{}: is cut short: has {} bytes, expected {}", path,
             map.bytes(), expected);
  ZERO_CHECK(sizes.records > 0 && sizes.names > 0,
             "{}: is damaged: room for {} records and {} names", path, sizes.records, sizes.names);
  ZERO_CHECK(header.world <= flight::kMost && header.rank < header.world,
             "{}: is damaged: of rank {} of {} ranks", path, header.rank, header.world);
  return sizes;
}

}  // namespace

FlightReader::FlightReader(const std::string& path)
    : path_(path), map_(map_whole(path)), sizes_(checked_sizes(map_, path)), offsets_(sizes_) {
  fixed_.rank = static_cast<int>(head().rank);
  fixed_.world = static_cast<int>(head().world);
  fixed_.run = head().run;
  fixed_.process = head().process;
  fixed_.host = printable_name(head().host.data(), head().host.size());
  fixed_.boot = printable_name(head().boot.data(), head().boot.size());
}

std::int64_t FlightReader::wall_clock_offset() const {
  return std::clamp<std::int64_t>(head().created, 0, flight::kLatestWall) -
         time_in(head().created_monotonic);
}

std::int64_t FlightReader::changed() const { return time_in(flight::read(head().changed)); }

std::string FlightReader::name_of(std::uint64_t number) const {
  if (number == 0) return "";
  const std::uint64_t in_use = std::min(flight::read(head().names), sizes_.names);
  const auto& name = map_.at<const flight::Name>(offsets_.names)[number <= in_use ? number - 1 : 0];
  return printable_name(name.data(), name.size());
}

std::string FlightReader::text(std::uint64_t offset, std::uint32_t room,
                               std::uint32_t length) const {
  const auto* const from = map_.at<const char>(offset);
  std::string bytes(std::min(room, length), ' ');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = flight::read(from[i]);
  return printable_text(bytes);
}

const flight::Group& FlightReader::group_at(std::uint32_t group) const {
  return map_.at<const flight::Group>(offsets_.groups)[group];
}

std::uint32_t FlightReader::group_count() const {
  return std::min(flight::read(head().groups), sizes_.groups);
}

std::vector<int> FlightReader::ranks_of(const flight::Group& group) const {
  const std::uint64_t size = flight::read(group.size);
  const std::uint64_t first = group.first_rank;
  if (size > static_cast<std::uint64_t>(fixed_.world) || first + size > sizes_.group_ranks)
    return {};
  return ranks_at(offsets_.group_ranks + first * sizeof(std::int32_t), size);
}

std::vector<int> FlightReader::ranks_at(std::uint64_t offset, std::uint64_t count) const {
  const auto* const all = map_.at<const std::int32_t>(offset);
  std::vector<int> ranks;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::int32_t rank = flight::read(all[i]);
    const bool again = !ranks.empty() && ranks.back() == rank;
    if (rank < 0 || rank >= fixed_.world || again) return {};
    ranks.push_back(rank);
  }
  return ranks;
}

bool FlightReader::copy(std::uint64_t ticket, flight::Record& record) const {
  const auto& from = map_.at<const flight::Record>(offsets_.records)[(ticket - 1) % sizes_.records];
  if (flight::read(from.ticket) != ticket) return false;
  record = {.ticket = ticket,
            .what = flight::read(from.what),
            .number = std::min(flight::read(from.number), kLargestNumber),
            .bytes = std::max<std::int64_t>(0, flight::read(from.bytes)),
            .enqueued = time_in(flight::read(from.enqueued)),
            .started = time_in(flight::read(from.started)),
            .ended = time_in(flight::read(from.ended)),
            .step = std::max<std::int64_t>(-1, flight::read(from.step))};
  return flight::read(from.ticket) == ticket;
}

FlightState::Collective FlightReader::collective_of(const flight::Record& record) const {
  FlightState::Collective result{.number = record.number,
                                 .bytes = record.bytes,
                                 .enqueued = record.enqueued,
                                 .started = record.started,
                                 .ended = record.ended};
  const std::string name = name_of(name_in(record));
  result.disk_decides = (detail_of(record) & flight::kDiskDecides) != 0;
  const std::uint64_t operation = detail_of(record) & ~std::uint64_t{flight::kDiskDecides};
  const bool known = kind_of(record) == flight::Kind::collective && operation < kOperations;
  result.name = known ? call_name(static_cast<Operation>(operation), name) : name;
  if (group_of(record) >= group_count()) return result;
  const flight::Group& group = group_at(group_of(record));
  result.group = name_of(flight::read(group.name));
  return result;
}

// Goes back from the newest record until all open collectives and the newest ended one of each
// group are found.
void FlightReader::find_collectives(FlightState& state) const {
  const std::uint32_t count = group_count();
  std::vector<std::uint64_t> ended(count);
  std::vector<std::optional<flight::Record>> last(count);
  std::vector<flight::Record> open;
  std::uint64_t wanted = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    ended[i] = flight::read(group_at(i).ended);
    const std::uint64_t submitted = flight::read(group_at(i).submitted);
    const std::uint64_t running = submitted > ended[i] ? submitted - ended[i] : 0;
    wanted += std::min<std::uint64_t>(running, sizes_.records) + (ended[i] > 0 ? 1 : 0);
  }
  const std::uint64_t newest = flight::read(head().records);
  const std::uint64_t oldest = newest > sizes_.records ? newest - sizes_.records : 0;
  for (std::uint64_t ticket = newest; ticket > oldest && wanted > 0; --ticket) {
    flight::Record record{};
    if (!copy(ticket, record) || !is_collective(record) || group_of(record) >= count) continue;
    std::optional<flight::Record>& group_last = last[group_of(record)];
    if (record.ended == 0 && record.number > ended[group_of(record)]) {
      open.push_back(record);
      --wanted;
    } else if (record.ended != 0 && (!group_last || group_last->number < record.number)) {
      if (!group_last) --wanted;
      group_last = record;
    }
  }
  const auto whole = [this](const flight::Record& record) {
    FlightState::Collective collective = collective_of(record);
    collective.ranks = ranks_of(group_at(group_of(record)));
    return collective;
  };
  if (std::ssize(open) > kMostOpen) open.erase(open.begin(), open.end() - kMostOpen);
  std::transform(open.rbegin(), open.rend(), std::back_inserter(state.open), whole);
  for (const std::optional<flight::Record>& record : last) {
    if (record) state.last.push_back(whole(*record));
  }
}

std::vector<FlightGroup> FlightReader::groups() const {
  std::vector<FlightGroup> all;
  for (std::uint32_t i = 0; i < group_count(); ++i) {
    all.push_back({name_of(flight::read(group_at(i).name)), ranks_of(group_at(i))});
  }
  return all;
}

// As FlightFile writes them; of what no rank can have written nothing is believed.
LastWords FlightReader::last_words() const {
  const flight::Words& from = head().words;
  const std::uint32_t kind = flight::read(from.kind);
  if (kind == 0 || kind > static_cast<std::uint32_t>(LastWords::kLastKind)) return {};
  const std::uint32_t bytes = std::min(sizes_.words, flight::read(from.text));
  LastWords words{
      .kind = static_cast<LastWords::Kind>(kind),
      .text = text(offsets_.words, sizes_.words, bytes),
      .own_error = text(offsets_.words + bytes, sizes_.words - bytes, flight::read(from.own_error)),
      .waited_seconds = static_cast<double>(flight::read(from.waited)) / 1e3};
  const std::uint32_t what = flight::read(from.what);
  const std::uint32_t culprits = flight::read(from.culprits);
  if (what <= static_cast<std::uint32_t>(FoundFault::mismatch)) {
    words.what = static_cast<FoundFault>(what);
  }
  if (culprits <= flight::kMostCulprits) words.culprits = ranks_at(offsets_.culprits, culprits);
  if (!std::ranges::is_sorted(words.culprits)) words.culprits.clear();
  return flight::read(from.kind) == kind ? words : LastWords{};
}

FlightState FlightReader::read() const {
  FlightState state = fixed_;
  state.step = std::max<std::int64_t>(-1, flight::read(head().step));
  state.mean_step_seconds = to_seconds(time_in(flight::read(head().mean_step)));
  state.phase = name_of(flight::read(head().phase));
  const std::uint64_t compute = flight::read(head().compute);
  if (compute != 0) state.compute = compute_text(compute & 0xff, name_of(compute >> 8));
  state.changed = changed();
  state.disk_calls.ended = std::max<std::int64_t>(0, flight::read(head().disk_calls_ended));
  state.disk_calls.begun = std::max<std::int64_t>(0, flight::read(head().disk_calls_begun));
  state.last_words_time = time_in(flight::read(head().last_words_time));
  state.over = flight::read(head().over) != 0;
  find_collectives(state);
  state.last_words = last_words();
  state.stack = text(offsets_.stack, sizes_.stack, flight::read(head().stack));
  return state;
}

std::vector<FlightRecord> FlightReader::records() const {
  const std::uint64_t newest = flight::read(head().records);
  std::vector<FlightRecord> result;
  std::uint64_t ticket = newest > sizes_.records ? newest - sizes_.records : 0;
  while (ticket < newest) {
    flight::Record record{};
    if (!copy(++ticket, record)) continue;
    FlightRecord next{.kind = kind_of(record), .step = record.step, .time = record.enqueued};
    if (is_collective(record)) {
      if (group_of(record) >= group_count()) continue;
      next.collective = collective_of(record);
      next.group = group_of(record);
      next.name = next.collective.name;
    } else if (next.kind == flight::Kind::compute) {
      next.name = compute_text(detail_of(record), name_of(name_in(record)));
    } else if (next.kind == flight::Kind::phase) {
      next.name = name_of(name_in(record));
    } else {
      continue;
    }
    result.push_back(std::move(next));
  }
  return result;
}

}  // namespace zero
