// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "collectives/backends.h"
#include "launch/data/batches.h"
#include "launch/telemetry/output.h"
#include "launch/train/trainer.h"
#include "tests/errors.h"
#include "tests/launch/tiny_run.h"
#include "weights/checkpoint_reader.h"

namespace zero::testing {

using Overrides = std::vector<std::string>;

inline Overrides plus(Overrides overrides, const Overrides& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

/// A start for which run.stop_after is over.
inline const Signals::Time kLongAgo = std::chrono::steady_clock::now() - std::chrono::hours(1);

/// A start of a run's program: what it was given, and what it left behind.
struct Started {
  int world = 1;
  Overrides overrides{};
  Signals* signals = nullptr;
  Signals::Time started = std::chrono::steady_clock::now();
  RunProgress* progress = nullptr;           // of the first rank
  const RunLock* folder_lock = nullptr;      // the first rank's
  files::FileSystem* disk = &files::disk();  // asked for room
  std::function<std::shared_ptr<CollectiveBackend>(const Communicator&)> wrap =
      [](const Communicator& ranks) { return ranks.implementation(); };
};

struct Ended {
  int status = 0;
  std::string out;  // of the first rank
};

/// A run over 16 sequences a step, in micro-batches of 2, that saves into its folder "ck".
class CutRun {
 public:
  const TinyRun& tiny() const { return tiny_; }
  std::string folder() const { return tiny_.folder().path("ck"); }
  Overrides values(const Overrides& more = {}) const {
    return plus({"train_batch_size=16", "run.steps=6", "run.checkpoint.folder=" + folder()}, more);
  }

  Ended start(const Started& start) const {
    Ended ended;
    const std::string out = tiny_.folder().path("out.txt");
    std::FILE* const stream = std::fopen(out.c_str(), "w");
    local::run(start.world, [&](Communicator& communicator) {
      const TrainConfig config = make_train_config(
          Configuration::read(tiny_.config(), values(start.overrides)), start.world);
      const Batches batches(config, communicator.rank());
      const bool first = communicator.rank() == 0;
      Console console(stream, first ? Console::Mode::lines : Console::Mode::silent);
      std::unique_ptr<RunLog> log;
      if (first) log = std::make_unique<RunLog>(config.run.log);
      const auto device = cpu::open({.threads = config.run.threads});
      Communicator wrapped(start.wrap(communicator));
      Mesh mesh(wrapped, config.mesh);
      Trainer trainer({.config = config,
                       .batches = batches,
                       .mesh = mesh,
                       .device = *device,
                       .console = console,
                       .log = log.get(),
                       .folder_lock = first ? start.folder_lock : nullptr,
                       .progress = first ? start.progress : nullptr,
                       .signals = start.signals,
                       .started = start.started,
                       .disk = *start.disk});
      const int status = trainer.run();
      if (first) ended.status = status;
    });
    std::fclose(stream);
    ended.out = tiny_.folder().read("out.txt");
    return ended;
  }

  std::string refusal(const Started& start) const {
    return error_of([&] { this->start(start); });
  }

  /// Changes what the trainer keeps in the checkpoint of `step`, whose checksums hold again.
  void rewrite(std::int64_t step,
               const std::function<void(nlohmann::ordered_json&)>& change) const {
    const std::string path = checkpoint_path(folder(), {.step = step});
    CheckpointIndex index = CheckpointReader(files::disk(), path).index();
    change(index.extra);
    const std::string text = checkpoint_index_text(index);
    std::ofstream(path + "/index.json", std::ios::binary) << text;
    std::ofstream(path + "/COMMIT", std::ios::binary) << commit_line(text);
  }

  /// Everything of the log that must not depend on where the run was cut, or how it was sharded.
  nlohmann::json results() const {
    nlohmann::json all = nlohmann::json::array();
    for (const nlohmann::json& line : tiny_.log()) {
      for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "tokens", "state_hash",
                              "validation_loss"}) {
        if (line.contains(key)) all.push_back({key, line[key]});
      }
    }
    return all;
  }

  std::vector<std::int64_t> saved() const {
    std::vector<std::int64_t> steps;
    for (const FoundCheckpoint& found : find_checkpoints(files::disk(), folder())) {
      EXPECT_TRUE(found.complete()) << found.fault;
      steps.push_back(found.name.step);
    }
    return steps;
  }

 private:
  TinyRun tiny_;
};

}  // namespace zero::testing
