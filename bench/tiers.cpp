// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/checked_math.h"
#include "base/error.h"
#include "base/message_text.h"
#include "bench/section.h"
#include "bench/small_gpt2.h"
#include "bench/synthetic_model.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "engine/engine.h"
#include "files/disk_calls.h"
#include "files/posix_file.h"
#include "tiers/tier_file.h"

namespace zero::bench {
namespace {

constexpr std::int64_t kUnitParameters = std::int64_t{1} << 23;  // parameters
constexpr std::int64_t kStateBytes = 12;  // bytes of a parameter's fp32 master and moments
constexpr double kToGiga = 1e-9;

/// A program that does nothing else on the same disk, with a file as the engine's: a thread for
/// each request in flight, which moves one block at a time past the page cache.
class RawDisk {
 public:
  enum class Pass : std::uint8_t {
    read,
    write,
    update,  ///< each block is read, then written
  };

  RawDisk(const TierFileOptions& options, std::int64_t bytes)
      : options_(options),
        blocks_(std::max<std::int64_t>(bytes / options.block_bytes, 1)),
        file_(files::disk().create_scratch(options.folder, blocks_ * options.block_bytes)),
        reader_(files::posix_file(*file_.input).direct_descriptor()),
        writer_(files::posix_file(*file_.output).direct_descriptor()) {
    ZERO_CHECK(reader_ >= 0 && writer_ >= 0,
               "{}: cannot be read and written past the page cache: {}; give --tier-folder",
               options.folder, files::disk().io_description());
    const std::int64_t all = checked_mul(options.queue.depth, options.block_bytes);
    const auto available = available_memory();
    ZERO_CHECK(!available || all <= *available,
               "--tier-depth x --tier-block is {} of memory, and {} are available",
               decimal_bytes(all), decimal_bytes(*available));
    std::mt19937_64 random(1);  // what no file system or disk can compress
    for (int i = 0; i < options.queue.depth; ++i) {
      const auto length = static_cast<std::size_t>(options.block_bytes);
      auto* const block = static_cast<std::uint64_t*>(std::aligned_alloc(TierFile::kBlock, length));
      memory_.emplace_back(block);
      ZERO_CHECK(block != nullptr, "no memory for {} bytes", length);
      for (std::uint64_t& each : std::span(block, length / sizeof(*block))) each = random();
    }
  }

  /// Bytes a second, read and written together.
  double rate(Pass pass) {
    next_ = 0;
    error_ = 0;
    const double seconds = seconds_of([&] {
      std::vector<std::jthread> threads;
      for (const Memory& memory : memory_) {
        threads.emplace_back([this, pass, block = memory.get()] { move(pass, block); });
      }
    });
    ZERO_CHECK(error_ == 0,
               "{}: cannot be read and written past the page cache: {}; give --tier-folder",
               options_.folder, files::reason_of(error_));
    return static_cast<double>(blocks_ * options_.block_bytes * (pass == Pass::update ? 2 : 1)) /
           seconds;
  }

 private:
  struct Free {
    void operator()(std::uint64_t* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::uint64_t, Free>;

  void move(Pass pass, std::uint64_t* block) {
    const auto length = static_cast<std::size_t>(options_.block_bytes);
    for (std::int64_t i = next_++; i < blocks_ && error_ == 0; i = next_++) {
      const std::int64_t at = i * options_.block_bytes;
      if (pass != Pass::write) note([&] { return ::pread(reader_, block, length, at); });
      if (pass != Pass::read) note([&] { return ::pwrite(writer_, block, length, at); });
    }
  }
  /// Keeps the error of a call that must move a whole block.
  template <typename Call>
  void note(const Call& call) {
    const ssize_t moved = files::uninterrupted(call);
    if (moved != options_.block_bytes) error_ = moved < 0 ? errno : EIO;
  }

  TierFileOptions options_;
  std::int64_t blocks_;
  files::ScratchFile file_;
  int reader_;  // descriptors for O_DIRECT
  int writer_;
  std::vector<Memory> memory_;  // a block of each thread
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> error_{0};
};

/// An engine of one rank with bf16 parameters that takes its leases without computing.
class UpdateRuns {
 public:
  UpdateRuns(int threads, std::int64_t units, const TierOptions& tiers)
      : communicator_(local::single()),
        device_(cpu::open({.threads = threads})),
        engine_(*communicator_, *device_, options(tiers)) {
    for (std::int64_t i = 0; i < units; ++i) {
      units_.push_back(engine_.add_unit(fmt::format("h.{}", i), {{"weight", {kUnitParameters}}}));
    }
    engine_.seal();
  }

  std::int64_t elements() const { return engine_.parameter_count(); }
  /// Bytes of states that an update reads and writes, a second. Up to the last write.
  double rate() {
    for (const UnitId unit : units_) static_cast<void>(engine_.forward(unit));
    for (std::size_t i = units_.size(); i-- > 0;) static_cast<void>(engine_.backward(units_[i]));
    device_->communication().synchronize();
    const double seconds = seconds_of([&] {
      static_cast<void>(engine_.step({.learning_rate = 1e-4}));
      device_->transfer().synchronize();
    });
    return 2 * static_cast<double>(kStateBytes * elements()) / seconds;
  }

 private:
  static EngineOptions options(const TierOptions& tiers) {
    EngineOptions options = measured_options(0);
    options.tiers = tiers;
    return options;
  }

  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  std::vector<UnitId> units_;
};

/// Training steps at stage 3 of blocks of about kUnitParameters; optimizer states are in memory.
class FetchRuns {
 public:
  FetchRuns(int threads, std::int64_t blocks, const TierOptions& tiers)
      : model_(
            cpu::open({.threads = threads}), options(tiers),
            {.layers = blocks, .width = 832, .heads = 13, .batch = {.batch = 1, .sequence = 256}}) {
  }

  /// Bytes of the shards in the file.
  std::int64_t shard_bytes() {
    return model_.engine().device().file_ledger().snapshot().current_of(MemoryClass::parameters);
  }

  /// Seconds of a step, of which compute waited `fetches` for shards and `update` for windows.
  struct Step {
    double all = 0;
    double fetches = 0;
    double update = 0;
  };
  /// The mean of kSteps steps. Up to the last write.
  Step steps() {
    Step sum;
    sum.all = seconds_of([&] {
      for (int i = 0; i < kSteps; ++i) {
        const double before = waited();
        model_.train();
        sum.fetches += waited() - before;
        const double trained = waited();
        static_cast<void>(model_.engine().step({.learning_rate = 1e-4}));
        sum.update += waited() - trained;
      }
      model_.engine().device().transfer().synchronize();
    });
    return {sum.all / kSteps, sum.fetches / kSteps, sum.update / kSteps};
  }

 private:
  static constexpr int kSteps = 3;
  static EngineOptions options(const TierOptions& tiers) {
    EngineOptions options = measured_options(3);
    options.limits.persistence_threshold = kUnitParameters / 32;  // no block stays whole
    options.tiers = tiers;
    return options;
  }
  double waited() {
    static_cast<void>(model_.engine().device().compute().waited_seconds());
    return model_.engine().waits_for_tiers().seconds();
  }

  SmallGpt2 model_;
};

/// Updates of states on NVMe beside a plain program on the same disk and beside memory, and steps
/// that fetch shards from NVMe beside the same steps in memory.
class Tiers final : public Section {
 public:
  Tiers() {
    tiers_.optimizer = Tier::file;
    tiers_.file.folder = ".";
    tiers_.file.queue.one_by_one = false;
  }
  std::string name() const override { return "tiers"; }
  std::string summary() const override {
    return "updates of states on NVMe beside the disk's rate and memory's; fetches of parameters";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--tier-folder", tiers_.file.folder, "of the file, for the time of the run")
        ->capture_default_str();
    command.add_option("--tier-parameters", millions_, "in 2^20, of units of 2^23")
        ->capture_default_str()
        ->check(CLI::Range(8, 1 << 20));
    command.add_option("--tier-block", tiers_.file.block_bytes, "aio.block_size")
        ->capture_default_str()
        ->check(CLI::Range(TierFile::kBlock, std::int64_t{1} << 30));
    command.add_option("--tier-depth", tiers_.file.queue.depth, "aio.queue_depth")
        ->capture_default_str()
        ->check(CLI::Range(1, 4096));
    command.add_option("--tier-buffers", tiers_.windows.buffers, "offload_optimizer.buffer_count")
        ->capture_default_str()
        ->check(CLI::Range(1, 1024));
    command
        .add_option("--tier-window", tiers_.windows.buffer_elements,
                    "offload_optimizer.buffer_size")
        ->capture_default_str()
        ->check(CLI::Range(StateWindowOptions::kGrain, std::int64_t{1} << 40));
  }

  void run(Context& context) override {
    context.alone([&] {
      measure(context.threads(), context.report());
      measure_fetches(context.threads(), context.report());
    });
  }

 private:
  /// The slower of what disk and memory would allow an update, in each turn.
  struct Paces {
    std::vector<double> disk, memory, slower;
    void add(double of_disk, double of_memory) {
      disk.push_back(of_disk);
      memory.push_back(of_memory);
      slower.push_back(std::min(of_disk, of_memory));
    }
  };

  std::int64_t units() const { return millions_ * (std::int64_t{1} << 20) / kUnitParameters; }

  void measure(int threads, Report& report) const {
    UpdateRuns in_memory(threads, units(), {});
    UpdateRuns in_file(threads, units(), tiers_);
    const std::int64_t bytes = kStateBytes * in_file.elements();
    RawDisk disk(tiers_.file, bytes);
    disk.rate(RawDisk::Pass::write);  // the first writes of a file also find its blocks
    in_file.rate();
    in_memory.rate();
    std::vector<double> reads, writes;
    Paces limits;
    Turns turns;
    for (int round = 0; round <= kRounds; ++round) {
      limits.add(disk.rate(RawDisk::Pass::update), in_memory.rate());
      if (round == kRounds) break;
      turns.values.push_back(in_file.rate());
      reads.push_back(disk.rate(RawDisk::Pass::read));
      writes.push_back(disk.rate(RawDisk::Pass::write));
    }
    turns.limits = limits.slower;
    const auto add = [&](const std::string& what, const std::vector<double>& rates,
                         std::int64_t moved, double limit = 0) {
      report.add({.section = name(),
                  .name = what,
                  .bytes = moved,
                  .value = kToGiga * median_rate(rates),
                  .best = kToGiga * std::ranges::max(rates),
                  .unit = "GB/s",
                  .limit = kToGiga * limit});
    };
    add("disk, plain reads", reads, bytes);
    add("disk, plain writes", writes, bytes);
    add("disk, blocks read, then written", limits.disk, 2 * bytes);
    add("update, states in memory", limits.memory, 2 * bytes);
    add("update, states on NVMe", turns.values, 2 * bytes, median_rate(limits.slower));
    report.note(fmt::format(
        "tiers: turn by turn the update on NVMe has {:.0f} % of the slower of disk and memory; "
        "blocks in flight: {} of the plain program, as many of the engine by io_uring and {} by "
        "pwrite; {}",
        100 * turns.share(), tiers_.file.queue.depth,
        std::min(tiers_.file.queue.depth, tiers_.file.queue.threads),
        files::disk().io_description()));
  }

  void measure_fetches(int threads, Report& report) const {
    constexpr int kTurns = 3;
    TierOptions shards = tiers_;
    shards.optimizer = Tier::device;
    shards.parameters = Tier::file;
    FetchRuns in_memory(threads, units(), {});
    FetchRuns in_file(threads, units(), shards);
    in_memory.steps();
    in_file.steps();
    std::vector<double> memory, file, fetches, updates, shares;
    for (int turn = 0; turn < kTurns; ++turn) {
      memory.push_back(in_memory.steps().all);
      const FetchRuns::Step step = in_file.steps();
      file.push_back(step.all);
      fetches.push_back(step.fetches);
      updates.push_back(step.update);
      shares.push_back(step.fetches / step.all);
    }
    const auto add = [&](const std::string& what, const std::vector<double>& seconds,
                         std::int64_t bytes, double limit = 0) {
      const Timing timing = bench::summary(seconds);
      report.add({.section = name(),
                  .name = what,
                  .bytes = bytes,
                  .value = 1e3 * timing.median,
                  .best = 1e3 * timing.best,
                  .unit = "ms",
                  .limit = 1e3 * limit});
    };
    add("step, shards in memory", memory, 0);
    add("step, shards on NVMe", file, in_file.shard_bytes(), bench::summary(memory).median);
    add("fetches of that step, exposed", fetches, 0);
    report.note(
        fmt::format("tiers: {} of shards fetched in forward and in backward: exposed {:.4f} s, "
                    "{:.1f} % of the step; its update waited {:.4f} s for windows of them",
                    decimal_bytes(in_file.shard_bytes()), bench::summary(fetches).median,
                    100 * bench::summary(shares).median, bench::summary(updates).median));
  }

  TierOptions tiers_;
  std::int64_t millions_ = 64;
};

}  // namespace

std::unique_ptr<Section> tiers_section() { return std::make_unique<Tiers>(); }

}  // namespace zero::bench
