// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_loader.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "collectives/agreement.h"
#include "weights/text_file.h"

namespace zero {
namespace {

constexpr std::string_view kResuming = "resume";
constexpr const char* kCommitFile = "COMMIT";
constexpr std::int64_t kLargestCommit = 4096;  // bytes

/// The note of a rank whose failure is proven damage.
constexpr const char* kDamaged = "damaged";

RankStatus status_of(const CheckpointFailure& failure) {
  return {failure.why, failure.damaged ? kDamaged : ""};
}

/// The failure of all ranks together: of the lowest rank whose failure proves no damage, else of
/// the lowest that failed.
CheckpointFailure agreed(std::span<const RankStatus> statuses) {
  std::vector<RankStatus> unproven(statuses.begin(), statuses.end());
  for (RankStatus& status : unproven) {
    if (status.note == kDamaged) status.failure.clear();
  }
  if (std::string why = first_failure(unproven); !why.empty()) return {std::move(why), false};
  return {first_failure(statuses), true};
}

}  // namespace

CheckpointLoader::CheckpointLoader(const StateSource& of, const CheckpointOptions& options,
                                   std::int64_t blocks)
    : engine_(of.engine),
      disk_(of.disk),
      folder_(options.folder),
      names_(options.names),
      statuses_(of.engine.mesh().world(), of.engine.device()),
      tensors_(of.engine.states()),
      blocks_(blocks) {}

std::optional<Resumed> CheckpointLoader::load(const std::string& which,
                                              const AcceptCheckpoint& accept) {
  passed_over_.clear();
  if (which == "never") return std::nullopt;
  if (!engine_.device().has_memory()) {
    HostBlocks::plan(engine_.device(), blocks_);
    return std::nullopt;
  }
  const NoTimeout patient(statuses_.world(), "load");
  // Whatever is found, so that memory is as planned.
  HostBlocks blocks(statuses_.world(), engine_.device(), disk_, blocks_);
  bool any = false;
  for (const Candidate& candidate : candidates(which)) {
    CheckpointFailure failure = candidate.fault ? candidate.fault : open(candidate.path);
    if (!failure) {
      check(accept);
      failure = read(blocks);
    }
    if (!failure) {
      restore();
      return Resumed{reader_->index().step, candidate.path};
    }
    if (which != "auto") throw AgreedError(failure.why);
    if (!failure.damaged) {
      throw AgreedError(fmt::format(
          "{}; a checkpoint that cannot be read may be good, and is not passed over: mend the "
          "cause, or set \"run.resume\" to the folder of another checkpoint",
          failure.why));
    }
    any = any || !candidate.partial;
    passed_over_.push_back(failure.why);
  }
  if (any) refuse_to_begin_anew();
  return std::nullopt;
}

/// A run that begins over damaged checkpoints would cut the log and lose what is left of them.
void CheckpointLoader::refuse_to_begin_anew() const {
  throw AgreedError(
      fmt::format("{}: none of its checkpoints can be loaded; to begin anew, set \"run.resume\" to "
                  "\"never\" or "
                  "give another \"run.checkpoint.folder\":\n{}",
                  folder_, fmt::join(passed_over_, "\n")));
}

/// What rank 0 finds, on all ranks.
std::vector<CheckpointLoader::Candidate> CheckpointLoader::candidates(const std::string& which) {
  RankStatus mine;
  if (statuses_.rank() == 0) {
    mine.failure = failure_of([&] {
      nlohmann::json list = nlohmann::json::array();
      for (const auto& [path, fault, partial] : find(which))
        list.push_back({path, fault.why, fault.damaged, partial});
      mine.note = list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    });
  }
  const std::vector<RankStatus> statuses = statuses_.all_gather(mine, kResuming);
  if (const std::string& why = statuses[0].failure; !why.empty()) throw AgreedError(why);
  std::vector<Candidate> candidates;
  for (const auto& each : nlohmann::json::parse(statuses[0].note))
    candidates.push_back({each[0], {each[1], each[2]}, each[3]});
  return candidates;
}

/// The checkpoints that may be loaded, the best first: of an explicit path one.
std::vector<CheckpointLoader::Candidate> CheckpointLoader::find(const std::string& which) const {
  const bool any = which == "auto";
  if (!any && disk_.kind_of(which + "/" + kCommitFile) == files::PathKind::file)
    return {{.path = which, .fault = {}}};
  std::vector<Candidate> found;
  for (const FoundCheckpoint& step : find_checkpoints(disk_, any ? folder_ : which)) {
    const bool partial = step.name.state == FolderState::partial;
    if (!any && partial) continue;
    found.push_back({step.path, {step.fault, !step.complete() && !step.unreadable}, partial});
    if (!any) return found;
  }
  ZERO_CHECK(any,
             "{}: found no checkpoint; expected the folder of one (step_00000500, with a file "
             "COMMIT), or a folder that holds such",
             which);
  return found;
}

/// Opens a checkpoint on all ranks; tells why not, the same on all.
CheckpointFailure CheckpointLoader::open(const std::string& path) {
  std::string commit;
  const CheckpointFailure mine = checkpoint_failure_of([&] {
    reader_ = std::make_unique<CheckpointReader>(disk_, path);
    commit = read_text(disk_, path + "/" + kCommitFile, kLargestCommit);
  });
  const std::vector<RankStatus> statuses =
      statuses_.all_gather(mine ? status_of(mine) : RankStatus{"", commit}, kResuming);
  if (!first_failure(statuses).empty()) return agreed(statuses);
  for (std::size_t rank = 1; rank < statuses.size(); ++rank) {
    if (statuses[rank].note == statuses[0].note) continue;
    return {.why = fmt::format(
                "[rank {}] {}: is another checkpoint than the one that rank 0 sees; expected a "
                "folder on a file system that all hosts share, or equal copies",
                rank, path)};
  }
  return {};
}

/// Throws the same error on all ranks unless the open checkpoint fits the engine and the trainer.
void CheckpointLoader::check(const AcceptCheckpoint& accept) {
  agree(statuses_.world(), engine_.device(), kResuming, [&] {
    try {
      if (accept) accept(reader_->index().extra);
    } catch (const Error& error) {
      fail("{}/index.json: {}", reader_->folder(), error.what());
    }
    layout_.emplace(match_checkpoint(reader_->index(), reader_->folder(), tensors_.all(), names_));
  });
}

/// Sets the states from the open checkpoint. If that fails on a rank, they are the initial ones;
/// tells why, the same on all ranks.
CheckpointFailure CheckpointLoader::read(HostBlocks& blocks) {
  const std::vector<std::size_t> numbers = tensors_.numbers(*layout_);
  const auto needs = [&](std::int64_t block) {
    bool any = false;
    bool empty = true;
    layout_->for_each_piece(layout_->blocks().at(block), [&](const BlockPiece& piece) {
      empty = false;
      any = any || engine_.states().keeps(tensors_[numbers[piece.tensor]], piece.source_begin,
                                          piece.count);
    });
    // A block without elements, as of config.json, is read for its checksum alone.
    return any || (empty && statuses_.rank() == 0);
  };
  const CheckpointFailure mine =
      blocks.read(*reader_, needs, [&](std::int64_t block, std::span<std::byte> bytes) {
        layout_->for_each_piece(layout_->blocks().at(block), [&](const BlockPiece& piece) {
          const View values(bytes.data() + piece.offset, piece.count, DType::fp32, nullptr);
          engine_.states().set(tensors_[numbers[piece.tensor]], piece.source_begin, values);
        });
      });
  const CheckpointFailure failure = agreed(statuses_.all_gather(status_of(mine), kResuming));
  if (failure) engine_.states().initialise();
  return failure;
}

void CheckpointLoader::restore() {
  const CheckpointIndex& index = reader_->index();
  engine_.states().publish_parameters();
  engine_.states().restore(index.step - index.steps_skipped, index.steps_skipped);
}

}  // namespace zero
