// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/nanoseconds.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "files/disk_calls.h"
#include "launch/rendezvous/cores.h"

namespace zero {
namespace {

std::int64_t nanoseconds(TraceTrack::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// One number of each rank, in rank order.
std::vector<std::int64_t> gather(Communicator& communicator, Device& device, std::int64_t mine) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(communicator.size()));
  all[static_cast<std::size_t>(communicator.rank())] = mine;
  host_all_gather(communicator, device,
                  Slices::even(View::of(std::span<std::int64_t>(all)), communicator.size()),
                  {"trace", {}});
  return all;
}

void append_track(std::string& text, const TraceTrack& track, int rank, int thread,
                  std::int64_t shift) {
  const auto out = std::back_inserter(text);
  for (const TraceTrack::Event& event : track.events()) {
    fmt::format_to(
        out, ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{}",
        rank, thread, static_cast<double>(event.begin + shift) * 1e-3,
        static_cast<double>(event.end - event.begin) * 1e-3,
        nlohmann::json(track.name_of(event)).dump());
    if (event.bytes > 0) fmt::format_to(out, ",\"args\":{{\"bytes\":{}}}", event.bytes);
    text += '}';
  }
}

/// A counter event a moment, with a series for each class that ever has bytes.
void append_memory(std::string& text, const MemoryTrack& track, int rank, std::int64_t shift) {
  BytesByClass most{};
  for (const MemoryTrack::Moment& moment : track.moments()) {
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], moment.bytes[i]);
  }
  const auto out = std::back_inserter(text);
  const std::string lost =
      track.dropped() > 0 ? fmt::format(" (first {} moments dropped)", track.dropped()) : "";
  for (const MemoryTrack::Moment& moment : track.moments()) {
    fmt::format_to(out,
                   ",\n{{\"ph\":\"C\",\"pid\":{},\"ts\":{:.3f},\"name\":\"memory{}\",\"args\":{{",
                   rank, static_cast<double>(moment.time + shift) * 1e-3, lost);
    const char* between = "";
    for (const MemoryClass c : all_memory_classes()) {
      if (at(most, c) == 0) continue;
      fmt::format_to(out, "{}\"{}\":{}", std::exchange(between, ","), name_of(c),
                     at(moment.bytes, c));
    }
    text += "}}";
  }
}

}  // namespace

void MemoryTrack::add(TraceTrack::Time time, const BytesByClass& bytes) {
  moments_.push_back({nanoseconds(time), bytes});
  if (moments_.size() <= capacity_) return;
  moments_.pop_front();
  ++dropped_;
}

void TraceTrack::add(std::string_view name, Time begin, Time end, std::int64_t bytes) {
  auto id = ids_.find(name);
  if (id == ids_.end()) {
    id = ids_.emplace(name, static_cast<std::uint32_t>(names_.size())).first;
    names_.emplace_back(name);
  }
  events_.push_back({nanoseconds(begin), nanoseconds(end), bytes, id->second});
  if (events_.size() <= capacity_) return;
  events_.pop_front();
  ++dropped_;
}

std::string trace_events(const RankTrace& trace, int rank, std::int64_t shift) {
  std::string text;
  const auto name = [&](const char* what, int thread, const std::string& value) {
    text += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"name\":\"{}\"}}}}",
        rank, thread, what, value);
  };
  name("process_name", 0, fmt::format("rank {}", rank));
  const std::array<std::pair<const char*, const TraceTrack*>, 4> tracks{
      {{"steps", &trace.steps},
       {"units", &trace.units},
       {"compute", &trace.compute},
       {"communication", &trace.communication}}};
  int thread = 0;
  for (const auto& [title, track] : tracks) {
    const std::string lost =
        track->dropped() > 0 ? fmt::format(" (first {} events dropped)", track->dropped()) : "";
    name("thread_name", thread, title + lost);
    append_track(text, *track, rank, thread, shift);
    ++thread;
  }
  append_memory(text, trace.memory, rank, shift);
  return text;
}

std::string trace_head() {
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":0,\"name\":"
         "\"process_sort_index\",\"args\":{\"sort_index\":0}}";
}

std::string trace_tail(double clock_error) {
  return fmt::format("\n],\"otherData\":{{\"device_clock_error_us\":{:.3f}}}}}\n",
                     clock_error * 1e6);
}

std::vector<std::int64_t> clock_shifts(Communicator& communicator, Device& device) {
  constexpr int kRounds = 9;
  const auto world = static_cast<std::size_t>(communicator.size());
  const std::vector<RankPlacement> places = gather_placements(communicator, device, 1);
  std::vector<std::vector<std::int64_t>> seen(world);
  for (int round = 0; round < kRounds; ++round) {
    communicator.barrier(device.communication(), {"trace", {}});
    device.communication().synchronize();
    const std::vector<std::int64_t> now =
        gather(communicator, device, nanoseconds(std::chrono::steady_clock::now()));
    for (std::size_t rank = 0; rank < world; ++rank) seen[rank].push_back(now[0] - now[rank]);
  }
  std::vector<std::int64_t> shifts(world, 0);
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (places[rank].host == places[0].host) continue;
    std::sort(seen[rank].begin(), seen[rank].end());
    shifts[rank] = seen[rank][kRounds / 2];
  }
  return shifts;
}

double write_trace(Communicator& communicator, Device& device, const RankTrace& trace,
                   const std::string& path, TraceTrack::Time origin) {
  const int rank = communicator.rank();
  const std::vector<std::int64_t> shifts = clock_shifts(communicator, device);
  const std::int64_t begin = gather(communicator, device, nanoseconds(origin))[0];
  const auto own_error = static_cast<std::int64_t>(std::ceil(trace.clock_error * 1e9));
  const double error = to_seconds(std::ranges::max(gather(communicator, device, own_error)));
  std::string mine = trace_events(trace, rank, shifts[static_cast<std::size_t>(rank)] - begin);
  const std::vector<std::int64_t> sizes =
      gather(communicator, device, static_cast<std::int64_t>(mine.size()));
  std::ofstream file;
  const auto first_rank = [&](const auto& work) {
    if (rank != 0) return;
    const files::DiskCall counted;  // std::ofstream writes: others wait for it
    work();
  };
  first_rank([&] {
    file.open(path, std::ios::binary | std::ios::trunc);
    file << trace_head();
  });
  // One rank's text at a time: no rank ever holds the whole trace.
  for (int from = 0; from < communicator.size(); ++from) {
    std::string text =
        from == rank
            ? std::exchange(mine, {})
            : std::string(static_cast<std::size_t>(sizes[static_cast<std::size_t>(from)]), ' ');
    const View bytes = View::of(
        std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(text.data()), text.size()));
    host_broadcast(communicator, device, bytes, from, {"trace", {}});
    first_rank([&] { file << text; });
  }
  const auto end = [&] {
    file << trace_tail(error);
    file.close();
    ZERO_CHECK(file.good(),
               "run.trace: cannot write {}: {}; give the path of a file you may write to", path,
               std::strerror(errno));
  };
  agree(communicator, device, "run.trace", [&] { first_rank(end); });
  return error;
}

}  // namespace zero
