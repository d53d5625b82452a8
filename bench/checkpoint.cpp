// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpointer.h"
#include "collectives/host_values.h"
#include "device/cpu/memory.h"

namespace zero::bench {
namespace {

constexpr std::int64_t kTransfer = std::int64_t{4} << 20;  // bytes
constexpr double kAllowedPercent = 3;                      // of a step
constexpr double kAllowedMemory = 64;                      // MiB

/// A folder for checkpoints, gone at the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent)
      : path_(fmt::format("{}/zero_bench.{}", parent, ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The pages of the memory that a plain program reads into and writes from. A disk is given single
/// pages in several parts a call: a virtual one may read a third as fast.
enum class Pages : std::uint8_t { single, huge };

/// A plain writer and reader past the page cache, one call after another: what the disk gives a
/// program that does nothing else.
class PlainFile {
 public:
  PlainFile(std::string path, std::int64_t bytes, Pages pages)
      : path_(std::move(path)),
        calls_(std::max<std::int64_t>(bytes / kTransfer, 1)),
        memory_(static_cast<std::byte*>(cpu::allocate_memory(kTransfer))) {
    ZERO_CHECK(memory_ != nullptr, "no memory for {} bytes", kTransfer);
    if (pages == Pages::single) ::madvise(memory_, kTransfer, MADV_NOHUGEPAGE);
    std::fill_n(memory_, kTransfer, std::byte{0x5a});
  }
  ~PlainFile() { cpu::free_memory(memory_, kTransfer); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  double bytes() const { return static_cast<double>(calls_) * static_cast<double>(kTransfer); }
  /// Bytes a second, synced.
  double write() {
    const Descriptor file(::open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT, 0600));
    check(file.get() >= 0);
    return bytes() / seconds_of([&] {
             for (std::int64_t i = 0; i < calls_; ++i)
               check(::pwrite(file.get(), memory_, kTransfer, at(i)) == kWhole);
             check(::fsync(file.get()) == 0);
           });
  }
  double read() {
    const Descriptor file(::open(path_.c_str(), O_RDONLY | O_DIRECT));
    check(file.get() >= 0);
    return bytes() / seconds_of([&] {
             for (std::int64_t i = 0; i < calls_; ++i)
               check(::pread(file.get(), memory_, kTransfer, at(i)) == kWhole);
           });
  }

 private:
  static constexpr ssize_t kWhole = kTransfer;
  static std::int64_t at(std::int64_t call) { return call * kTransfer; }
  void check(bool done) const {
    ZERO_CHECK(done, "{}: cannot be written and read past the page cache: {}; give --folder", path_,
               std::generic_category().message(errno));
  }

  std::string path_;
  std::int64_t calls_;
  std::byte* memory_;
};

/// Checkpoints of a training run: how fast they are written and read beside a plain program on the
/// same disk, and what they cost the steps beside them.
class Checkpoint final : public Section {
 public:
  std::string name() const override { return "checkpoint"; }
  std::string summary() const override {
    return "checkpoints beside a plain O_DIRECT writer and reader; what a save costs the steps";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--saved-model", model_, "a model by name")->capture_default_str();
    command.add_option("--folder", folder_, "where checkpoints go, for the time of the run")
        ->capture_default_str();
    command.add_option("--saves", saves_, "turns of what is compared")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    command.add_option("--saved-stage", stage_, "of ZeRO")
        ->capture_default_str()
        ->check(CLI::Range(0, 3));
  }

  void run(Context& context) override {
    const bool many = context.size() > 1;
    const TrainConfig config = make_config({.model = model_,
                                            .batch = many ? 8 : 4,
                                            .sequence = 256,
                                            .stage = stage_,
                                            .threads = many ? 1 : context.threads(),
                                            .world = context.size()});
    const auto device = cpu::open({.threads = config.run.threads});
    Stepper stepper(config, context.communicator(), *device);
    stepper.step();
    std::unique_ptr<ScratchFolder> scratch;
    if (context.rank() == 0) scratch = std::make_unique<ScratchFolder>(folder_);
    const std::int64_t before = staging(*device);
    const std::string mine = scratch ? scratch->path() : "";
    const std::string path = all_gather_texts(context.communicator(), *device, mine, "folder")[0];
    Checkpointer checkpointer(stepper.engine(), {.folder = path});
    add(context, {.name = "staging memory of a rank",
                  .value = static_cast<double>(staging(*device) - before) / (1 << 20),
                  .unit = "MiB",
                  .limit = kAllowedMemory});
    saves(context, stepper, checkpointer, scratch.get());
    if (context.rank() == 0) context.report().note("checkpoint: " + checkpointer.io_description());
  }

 private:
  struct PlainRates {
    std::vector<double> writes, reads;  // bytes a second
  };

  static std::int64_t staging(Device& device) {
    const MemorySnapshot now = device.ledger().snapshot();
    return now.current_of(MemoryClass::staging) + now.current_of(MemoryClass::communication);
  }

  void add(Context& context, Row row) const {
    if (context.rank() != 0) return;
    row.section = name();
    row.ranks = context.size();
    if (row.best == 0) row.best = row.value;
    context.report().add(std::move(row));
  }

  /// Steps without a save, a save that nothing runs beside, steps with a save under them and a
  /// load, in turns with the plain program.
  void saves(Context& context, Stepper& stepper, Checkpointer& checkpointer,
             const ScratchFolder* scratch) {
    std::vector<double> saved, loaded, plain, with_save, exposed;
    std::array<PlainRates, 2> disk;  // by Pages
    SaveReport report;
    const auto finished = [&] {
      checkpointer.wait();
      report = checkpointer.report().value_or(SaveReport{.error = "no report of a save"});
      ZERO_CHECK(report.error.empty(), "{}", report.error);
    };
    // Removing an older checkpoint, which frees its blocks, is no part of writing one.
    const auto remove = [&](std::int64_t step) {
      if (scratch != nullptr)
        std::filesystem::remove_all(checkpoint_path(scratch->path(), {.step = step}));
    };
    const auto measure = [&](Pages pages) {
      context.alone([&] {
        PlainFile file(scratch->path() + "/plain", report.bytes, pages);
        PlainRates& rates = disk[static_cast<std::size_t>(pages)];
        rates.writes.push_back(file.write());
        rates.reads.push_back(file.read());
      });
    };
    for (int turn = 0; turn <= saves_; ++turn) {
      stepper.step();  // a state that has no checkpoint yet
      const double save = seconds_of([&] {
        checkpointer.save({});
        finished();
      });
      remove(report.step);
      const double steps = stepper.seconds(kSteps);
      const double busy = seconds_of([&] {
        checkpointer.save({});
        stepper.seconds(kSteps);
      });
      finished();
      exposed.push_back(report.exposed_seconds);
      const double load = seconds_of([&] { checkpointer.load("auto"); });
      for (const Pages pages : {Pages::single, Pages::huge}) measure(pages);
      remove(report.step);
      if (turn == 0) continue;  // warms up
      saved.push_back(static_cast<double>(report.bytes) / save);
      loaded.push_back(static_cast<double>(report.bytes) / load);
      plain.push_back(steps);
      with_save.push_back(busy);
    }
    for (const Pages pages : {Pages::single, Pages::huge}) {
      const PlainRates& rates = disk[static_cast<std::size_t>(pages)];
      const std::string beside = pages == Pages::huge ? ", plain program in huge pages" : "";
      rate_row(context, "save, nothing beside it" + beside, saved, rates.writes, report.bytes);
      rate_row(context, "load" + beside, loaded, rates.reads, report.bytes);
    }
    const double step = bench::summary(plain).median / kSteps;
    add(context, {.name = "held up by a save, of a step",
                  .value = 100 * bench::summary({exposed.begin() + 1, exposed.end()}).median / step,
                  .unit = "%",
                  .limit = kAllowedPercent});
    add(context,
        {.name = fmt::format("{} steps with a save, longer than without", kSteps),
         .value = 100 * (bench::summary(with_save).median / bench::summary(plain).median - 1),
         .unit = "%"});
  }

  void rate_row(Context& context, const std::string& what, const std::vector<double>& rates,
                const std::vector<double>& limits, std::int64_t bytes) const {
    if (context.rank() != 0) return;
    constexpr double kGiga = 1e-9;
    add(context, {.name = what,
                  .bytes = bytes,
                  .value = kGiga * median_rate(rates),
                  .best = kGiga * std::ranges::max(rates),
                  .unit = "GB/s",
                  .limit = kGiga * median_rate(limits)});
  }

  static constexpr int kSteps = 3;

  std::string model_ = "gpt2-124m";
  std::string folder_ = ".";
  int saves_ = 3;
  int stage_ = 3;
};

}  // namespace

std::unique_ptr<Section> checkpoint_section() { return std::make_unique<Checkpoint>(); }

}  // namespace zero::bench
