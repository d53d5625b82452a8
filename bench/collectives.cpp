// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>

#include "base/checked_math.h"
#include "bench/mpi_own.h"
#include "bench/section.h"
#include "bench/timing.h"

namespace zero::bench {
namespace {

constexpr std::int64_t kBytesPerCase = std::int64_t{512} << 20;  // repeats move about this much

int repeats_of(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>(kBytesPerCase / bytes, 7, 300));
}

/// Registered buffers of one rank, and collectives on them, on the stream that runs on its caller:
/// the queue to a communication thread is no part of a collective.
class Bench {
 public:
  Bench(Communicator& communicator, Device& device, std::int64_t bytes)
      : communicator_(communicator), stream_(device.compute()) {
    const int world = communicator.size();
    bytes_ = round_up(bytes, (bytes < 4096 ? 4 : 64) * std::int64_t{world});
    const auto buffer = [&](std::string_view label) {
      Buffer made = communicator.allocate(device, bytes_, DType::u8, MemoryClass::other, label);
      device.kernels().zero(stream_, made.view());
      return made;
    };
    send_ = buffer("send");
    receive_ = buffer("receive");
    const Slices slices = Slices::even(send_.view(), world);
    workspace_ = device.allocate(communicator.reduce_scatter_workspace(slices), DType::u8,
                                 MemoryClass::other, "workspace");
  }

  std::int64_t bytes() const { return bytes_; }
  Communicator& communicator() const { return communicator_; }

  void run(Operation operation, DType wire) {
    const Tag tag{.purpose = "bench"};
    const int world = communicator_.size();
    const std::int64_t count = bytes_ / size_of(wire);
    const View send = send_.view().reinterpret(wire, count);
    const View receive = receive_.view().reinterpret(wire, count);
    const Slices full = Slices::even(send, world);
    switch (operation) {
      case Operation::all_gather:
        return communicator_.all_gather(receive.slice(0, count / world), full, stream_, tag);
      case Operation::reduce_scatter: {
        const View sum = receive_.view().reinterpret(DType::fp32, count / world);
        const View workspace =
            workspace_.view().reinterpret(wire, communicator_.reduce_scatter_workspace(full));
        return communicator_.reduce_scatter(full, {{}, sum, nullptr}, workspace, stream_, tag);
      }
      case Operation::all_reduce:
        return communicator_.all_reduce(send, ReduceOp::sum, stream_, tag);
      case Operation::all_to_all:
        return communicator_.all_to_all(full, Slices::even(receive, world), stream_, tag);
      case Operation::broadcast:
        return communicator_.broadcast(send, 0, stream_, tag);
      case Operation::barrier:
        return communicator_.barrier(stream_, tag);
    }
  }

  /// MPI's own collective for the same: sums in fp32, of as many bytes.
  void run_mpi(Operation operation) {
    const std::int64_t count = bytes_ / size_of(DType::fp32);
    const View send = send_.view().reinterpret(DType::fp32, count);
    const View receive = receive_.view().reinterpret(DType::fp32, count);
    const std::int64_t share = count / communicator_.size();
    switch (operation) {
      case Operation::all_gather:
        return run_mpi_own(operation, receive.slice(0, share), send);
      case Operation::reduce_scatter:
        return run_mpi_own(operation, send, receive.slice(0, share));
      default:
        return run_mpi_own(operation, send, receive);
    }
  }

  /// For each call, the largest of all ranks' `seconds`.
  void take_slowest(std::vector<double>& seconds) {
    communicator_.all_reduce(View::of(std::span(seconds)), ReduceOp::max, stream_,
                             {.purpose = "bench"});
  }

 private:
  Communicator& communicator_;
  Stream& stream_;
  std::int64_t bytes_ = 0;
  Buffer send_, receive_, workspace_;
};

/// Bytes read and written over all ranks, at the least, per byte of one rank's full buffer.
double traffic(Operation operation, double world) {
  switch (operation) {
    case Operation::reduce_scatter:
      return world + 1;  // every rank's buffer is read once, each slice written once
    case Operation::all_reduce:
      return world + 1 + world * 2;
    case Operation::broadcast:
      return 2 * (world - 1);
    default:
      return 2 * world;
  }
}

struct Timings {
  Timing ours;
  Timing mpi;  ///< zero where it was not measured
};

/// Ours and MPI's in turns; each call's time is the slowest rank's.
Timings time_both(Bench& bench, const CollectiveCases::One& one, CollectiveCases::Beside beside) {
  const bool with_mpi = beside == CollectiveCases::Beside::mpi;
  const int repeats = repeats_of(bench.bytes());
  std::vector<double> ours;
  std::vector<double> theirs;
  const auto time = [&](std::vector<double>& seconds, const auto& body) {
    bench.run(Operation::barrier, one.wire);
    seconds.push_back(seconds_of(body));
  };
  for (int i = 0; i <= repeats; ++i) {  // the first ones only warm up
    time(ours, [&] { bench.run(one.operation, one.wire); });
    if (with_mpi) time(theirs, [&] { bench.run_mpi(one.operation); });
    if (i == 0) ours.clear();
    if (i == 0) theirs.clear();
  }
  bench.take_slowest(ours);
  if (!with_mpi) return {summary(ours), {}};
  bench.take_slowest(theirs);
  return {summary(ours), summary(theirs)};
}

std::vector<Row> rows_of(const Bench& bench, const CollectiveCases::One& one,
                         const Timings& timings, const MemoryRates& memory) {
  const int world = bench.communicator().size();
  const bool small = bench.bytes() < (1 << 20);
  const auto sent =
      static_cast<double>(Communicator::sent_bytes(one.operation, bench.bytes(), world));
  const double unit = sent * (small ? 1e-6 : 1e-9);
  Row row{.section = "",
          .name = std::string(name_of(one.operation)),
          .ranks = world,
          .bytes = bench.bytes(),
          .dtype = std::string(name_of(one.wire)),
          .value = unit / timings.ours.median,
          .best = unit / timings.ours.best,
          .unit = small ? "MB/s" : "GB/s"};
  if (bench.communicator().local_size() == world && !small) {
    const double moved = traffic(one.operation, world) * static_cast<double>(bench.bytes());
    row.limit = memory.copy * sent / moved;
  }
  std::vector<Row> rows{row};
  if (timings.mpi.median <= 0) return rows;
  row.name += " over MPI's";
  row.limit = unit / timings.mpi.median;
  rows.push_back(std::move(row));
  return rows;
}

}  // namespace

CollectiveCases link_cases() {
  return {.section = "limits",
          .operations = {{Operation::all_gather, DType::bf16},
                         {Operation::reduce_scatter, DType::bf16}},
          .bytes = {1 << 20, 16 << 20, 64 << 20}};
}

CollectiveCases all_cases() {
  return {.section = "collectives",
          .operations = {{Operation::all_gather, DType::bf16},
                         {Operation::reduce_scatter, DType::bf16},
                         {Operation::reduce_scatter, DType::fp32},
                         {Operation::all_reduce, DType::fp32},
                         {Operation::all_to_all, DType::bf16},
                         {Operation::broadcast, DType::bf16}},
          .bytes = {64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20,
                    16 << 20, 128 << 20},
          .beside = CollectiveCases::Beside::mpi};
}

void measure_collectives(Communicator& communicator, const CollectiveCases& cases,
                         const MemoryRates& memory, Report& report) {
  if (communicator.size() == 1) {
    report.note(fmt::format("{}: the link needs ranks to talk: mpirun -np 2 zero_bench {}",
                            cases.section, cases.section));
    return;
  }
  report.note(fmt::format("{}: ranks talk through {}", cases.section, communicator.description()));
  const auto device = cpu::open();
  for (const std::int64_t bytes : cases.bytes) {
    Bench bench(communicator, *device, bytes);
    for (const CollectiveCases::One& one : cases.operations) {
      for (Row& row : rows_of(bench, one, time_both(bench, one, cases.beside), memory)) {
        row.section = cases.section;
        report.add(std::move(row));
      }
    }
  }
}

namespace {

/// How ranks talk, call by call.
class Collectives final : public Section {
 public:
  std::string name() const override { return "collectives"; }
  std::string summary() const override {
    return "every collective beside MPI's own, small to large";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--bytes", bytes_, "of one rank's full buffer (default: 64 to 134217728)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  }
  void run(Context& context) override {
    CollectiveCases cases = all_cases();
    if (!bytes_.empty()) cases.bytes = bytes_;
    const MemoryRates& memory = context.memory();
    measure_collectives(context.communicator(), cases, memory, context.report());
  }

 private:
  std::vector<std::int64_t> bytes_;
};

}  // namespace

std::unique_ptr<Section> collectives_section() { return std::make_unique<Collectives>(); }

}  // namespace zero::bench
