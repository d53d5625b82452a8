// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpointer.h"

#include "base/error.h"
#include "checkpoint/checkpoint_loader.h"
#include "checkpoint/checkpoint_saver.h"

namespace zero {
namespace {

/// Checks the options.
files::FileSystem& disk_of(const CheckpointOptions& options) {
  ZERO_CHECK(!options.folder.empty(), "a folder of checkpoints has no name; give its path");
  ZERO_CHECK(options.keep_last >= 0 && options.keep_every >= 0,
             "{}: keep_last is {} and keep_every {}, expected 0 or more", options.folder,
             options.keep_last, options.keep_every);
  return options.disk != nullptr ? *options.disk : files::disk();
}

}  // namespace

Checkpointer::Checkpointer(Engine& engine, const CheckpointOptions& options)
    : engine_(engine),
      disk_(disk_of(options)),
      saver_(std::make_unique<CheckpointSaver>(StateSource{engine, disk_}, options)),
      loader_(std::make_unique<CheckpointLoader>(StateSource{engine, disk_}, options,
                                                 saver_->writer().layout().blocks().count())) {}

Checkpointer::~Checkpointer() = default;

void Checkpointer::save(const nlohmann::ordered_json& extra,
                        const std::function<void()>& before_commit) {
  saver_->save(extra, before_commit);
}

void Checkpointer::wait() { saver_->wait(); }

void Checkpointer::give_up(const std::string& why) { saver_->give_up(why); }

std::optional<SaveReport> Checkpointer::report() { return saver_->report(); }

std::optional<Resumed> Checkpointer::load(const std::string& which,
                                          const AcceptCheckpoint& accept) {
  saver_->wait();                   // throws if the engine has ended
  engine_.states().finish_reads();  // of another Checkpointer, which saves the states as they are
  return loader_->load(which, accept);
}

const std::vector<std::string>& Checkpointer::passed_over() const { return loader_->passed_over(); }

std::string Checkpointer::io_description() const { return disk_.io_description(); }

}  // namespace zero
