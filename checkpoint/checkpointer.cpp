// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpointer.h"

#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_loader.h"
#include "checkpoint/checkpoint_saver.h"

namespace zero {
namespace {

files::FileSystem& disk_of(const CheckpointOptions& options) {
  return options.disk != nullptr ? *options.disk : files::disk();
}

CheckpointOptions checked(CheckpointOptions options) {
  ZERO_CHECK(!options.folder.empty(), "a folder of checkpoints has no name; give its path");
  ZERO_CHECK(options.keep_last >= 0 && options.keep_every >= 0,
             "{}: keep_last is {} and keep_every {}, expected 0 or more", options.folder,
             options.keep_last, options.keep_every);
  return options;
}

}  // namespace

class Checkpointer::Core {
 public:
  Core(Engine& engine, const CheckpointOptions& options)
      : engine(engine),
        disk(disk_of(options)),
        saver({engine, disk}, options),
        loader({engine, disk}, options, saver.writer().layout().blocks().count()) {}

  Engine& engine;
  files::FileSystem& disk;
  CheckpointSaver saver;
  CheckpointLoader loader;
};

Checkpointer::Checkpointer(Engine& engine, CheckpointOptions options)
    : core_(std::make_unique<Core>(engine, checked(std::move(options)))) {}

Checkpointer::~Checkpointer() = default;

void Checkpointer::save(const nlohmann::ordered_json& extra,
                        const std::function<void()>& before_commit) {
  core_->saver.save(extra, before_commit);
}

void Checkpointer::remove_only(RemovesCheckpoint removes) {
  core_->saver.remove_only(std::move(removes));
}

void Checkpointer::wait() { core_->saver.wait(); }

void Checkpointer::give_up(const std::string& why) { core_->saver.give_up(why); }

std::optional<SaveReport> Checkpointer::report() { return core_->saver.report(); }

std::optional<Resumed> Checkpointer::load(const std::string& which,
                                          const AcceptCheckpoint& accept) {
  core_->saver.wait();  // throws if the engine has ended
  core_->engine.states()
      .finish_reads();  // of another Checkpointer, which saves the states as they are
  return core_->loader.load(which, accept);
}

const std::vector<std::string>& Checkpointer::passed_over() const {
  return core_->loader.passed_over();
}

std::string Checkpointer::how() const { return core_->disk.how(); }

CheckpointSaver& CheckpointerParts::saver(Checkpointer& checkpointer) {
  return checkpointer.core_->saver;
}

}  // namespace zero
