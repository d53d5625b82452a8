// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/checked_math.h"
#include "bench/section.h"
#include "bench/timing.h"

namespace zero::bench {
namespace {

constexpr std::int64_t kBytesPerCase = std::int64_t{512} << 20;  // repeats move about this much

int repeats_of(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>(kBytesPerCase / bytes, 7, 200));
}

/// Buffers of one rank for collectives on `bytes` bytes of bf16.
class Bench {
 public:
  Bench(Communicator& communicator, Device& device, std::int64_t bytes)
      : communicator_(communicator), stream_(device.communication()) {
    const int world = communicator.size();
    count_ = round_up(div_ceil(bytes, 2), 64 * world);
    send_ = communicator.allocate(device, count_, DType::bf16, MemoryClass::other, "send");
    receive_ = communicator.allocate(device, count_, DType::bf16, MemoryClass::other, "receive");
    const std::int64_t needed = communicator.reduce_scatter_workspace(full());
    workspace_ = device.allocate(needed, DType::bf16, MemoryClass::other, "workspace");
    for (const Buffer* buffer : {&send_, &receive_, &workspace_}) {
      device.kernels().zero(stream_, buffer->view());
    }
    stream_.synchronize();
  }

  std::int64_t bytes() const { return count_ * 2; }

  void run(Operation operation) {
    const Tag tag{.unit = "bench"};
    const View mine = receive_.slice(0, count_ / communicator_.size());
    switch (operation) {
      case Operation::all_gather:
        communicator_.all_gather(mine, full(), stream_, tag);
        break;
      case Operation::reduce_scatter:
        communicator_.reduce_scatter(full(), {.addends = {}, .destination = mine, .norm = nullptr},
                                     workspace_.view(), stream_, tag);
        break;
      case Operation::all_reduce:
        communicator_.all_reduce(send_.view().reinterpret(DType::fp32, count_ / 2), ReduceOp::sum,
                                 stream_, tag);
        break;
      case Operation::all_to_all:
        communicator_.all_to_all(full(), Slices::even(receive_.view(), communicator_.size()),
                                 stream_, tag);
        break;
      case Operation::broadcast:
        communicator_.broadcast(send_.view(), 0, stream_, tag);
        break;
      case Operation::barrier:
        communicator_.barrier(stream_, tag);
        break;
    }
    stream_.synchronize();
  }

  /// The largest of all ranks' `seconds`.
  double slowest(double seconds) {
    communicator_.all_reduce(View::of(std::span(&seconds, 1)), ReduceOp::max, stream_,
                             {.unit = "bench"});
    stream_.synchronize();
    return seconds;
  }

 private:
  Slices full() const { return Slices::even(send_.view(), communicator_.size()); }

  Communicator& communicator_;
  Stream& stream_;
  std::int64_t count_ = 0;
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

Row time_one(Communicator& communicator, Bench& bench, Operation operation,
             const MemoryRates& memory) {
  const int repeats = repeats_of(bench.bytes());
  std::vector<double> seconds;
  bench.run(operation);
  for (int i = 0; i < repeats; ++i) {
    bench.run(Operation::barrier);
    const double mine = seconds_of([&] { bench.run(operation); });
    seconds.push_back(bench.slowest(mine));
  }
  const Timing timing = summary(std::move(seconds));
  const int world = communicator.size();
  const auto sent = static_cast<double>(Communicator::sent_bytes(operation, bench.bytes(), world));
  Row row{.section = "",
          .name = std::string(name_of(operation)),
          .ranks = world,
          .bytes = bench.bytes(),
          .dtype = operation == Operation::all_reduce ? "fp32" : "bf16",
          .value = sent * 1e-9 / timing.median,
          .best = sent * 1e-9 / timing.best,
          .unit = "GB/s"};
  if (communicator.local_size() == world) {
    const double moved = traffic(operation, world) * static_cast<double>(bench.bytes());
    row.limit = memory.copy * sent / moved;
  }
  return row;
}

}  // namespace

CollectiveCases link_cases() {
  return {.section = "limits",
          .operations = {Operation::all_gather, Operation::reduce_scatter},
          .bytes = {1 << 20, 16 << 20, 64 << 20}};
}

CollectiveCases all_cases() {
  return {.section = "collectives",
          .operations = {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce,
                         Operation::all_to_all, Operation::broadcast},
          .bytes = {4 << 10, 64 << 10, 1 << 20, 16 << 20}};
}

void measure_collectives(Communicator& communicator, const CollectiveCases& cases,
                         const MemoryRates& memory, Report& report) {
  if (communicator.size() == 1) {
    report.note(fmt::format("{}: the link needs ranks to talk: mpirun -np 2 zero_bench {}",
                            cases.section, cases.section));
    return;
  }
  const auto device = cpu::open();
  for (const std::int64_t bytes : cases.bytes) {
    Bench bench(communicator, *device, bytes);
    for (const Operation operation : cases.operations) {
      Row row = time_one(communicator, bench, operation, memory);
      row.section = cases.section;
      report.add(std::move(row));
    }
  }
}

namespace {

/// How ranks talk, call by call.
class Collectives final : public Section {
 public:
  std::string name() const override { return "collectives"; }
  std::string summary() const override { return "every collective, small to large"; }
  void run(Context& context) override {
    const MemoryRates& memory = context.memory();
    measure_collectives(context.communicator(), all_cases(), memory, context.report());
  }
};

}  // namespace

std::unique_ptr<Section> collectives_section() { return std::make_unique<Collectives>(); }

}  // namespace zero::bench
