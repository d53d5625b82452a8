// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/host.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "weights/text_file.h"

namespace zero {
namespace {

/// Blocks of a round. The memory, 12 MiB, has three rounds: one that other ranks may still use, one
/// that is verified, and one that the disk reads.
constexpr std::int64_t kMostHeld = 4;
constexpr std::int64_t kRounds = 3;
constexpr std::int64_t kElements = kBlockBytes / std::int64_t{sizeof(float)};
constexpr std::string_view kLabel = "blocks that are read";

std::int64_t held_of(std::int64_t blocks) { return std::clamp<std::int64_t>(blocks, 1, kMostHeld); }

/// The ranks of this host; null if there is one rank.
std::unique_ptr<Communicator> ranks_of_host(Communicator& world, Device& device) {
  if (world.size() == 1) return nullptr;
  const std::vector<std::string> hosts =
      all_gather_texts(world, device, host_name(), "hosts of ranks");
  const auto mine = hosts.begin() + world.rank();
  const auto color = std::find(hosts.begin(), hosts.end(), *mine) - hosts.begin();
  return world.split(static_cast<int>(color), world.rank());
}

SharedBuffer allocate(Communicator& host, Device& device, std::int64_t held) {
  const std::int64_t count = kRounds * held * kElements;
  if (device.memory() == MemorySpace::host && host.size() > 1)
    return host.allocate_shared(device, count, DType::fp32, MemoryClass::staging, kLabel);
  return {device.allocate_host(count, DType::fp32, MemoryClass::staging, kLabel), false};
}

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

HostBlocks::HostBlocks(Communicator& world, Device& device, files::FileSystem& disk,
                       std::int64_t blocks)
    : device_(device),
      split_(ranks_of_host(world, device)),
      host_(split_ ? *split_ : world),
      held_(held_of(blocks)),
      readers_(std::min<std::int64_t>(host_.size(), held_)),
      each_(held_ / readers_),
      memory_(allocate(host_, device, held_)),
      queue_(disk.queue(std::as_writable_bytes(memory_.buffer.view().as<float>()),
                        {.depth = narrow<int>(2 * each_)})) {}

void HostBlocks::plan(Device& device, std::int64_t blocks) {
  device.allocate_host(kRounds * held_of(blocks) * kElements, DType::fp32, MemoryClass::staging,
                       kLabel);
}

CheckpointFailure HostBlocks::read(CheckpointReader& reader, const Needs& needs, const Use& use) {
  files_.clear();
  failure_ = {};
  find_needed(reader, needs);
  const auto blocks = std::ssize(needed_);
  const std::int64_t rounds = div_ceil(blocks, per_round());
  if (rounds > 0) start(reader, 0);
  for (std::int64_t round = 0; round < rounds; ++round) {
    // Its memory was that of the round before the last, which all ranks have used: they have since
    // shared the last.
    if (round + 1 < rounds) start(reader, round + 1);
    verify(reader, round);
    if (!share(round)) break;
    const std::int64_t end = std::min(blocks, (round + 1) * per_round());
    for (std::int64_t i = round * per_round(); i < end && !failure_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (mine_[static_cast<std::size_t>(needed_[at])] == 0) continue;
      failure_ = checkpoint_failure_of([&] { use(needed_[at], place(reader, at)); });
    }
  }
  for (std::int64_t round = 0; round < std::ssize(reading_); ++round) verify(reader, round);
  files_.clear();
  return failure_;
}

/// A failure to ask is told at the end: the ranks of the host go on together.
void HostBlocks::find_needed(const CheckpointReader& reader, const Needs& needs) {
  mine_.assign(static_cast<std::size_t>(reader.blocks().count()), 0);
  failure_ = checkpoint_failure_of([&] {
    for (std::size_t i = 0; i < mine_.size(); ++i)
      mine_[i] = needs(static_cast<std::int64_t>(i)) ? 1 : 0;
  });
  std::vector<std::int32_t> all = mine_;
  if (host_.size() > 1 && !all.empty()) {
    host_all_reduce(host_, device_, View::of(std::span(all)), ReduceOp::max,
                    {"blocks that ranks need", {}});
  }
  needed_.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) needed_.push_back(static_cast<std::int64_t>(i));
  }
}

std::span<std::byte> HostBlocks::place(const CheckpointReader& reader, std::size_t at) const {
  const auto i = static_cast<std::int64_t>(at);
  const std::int64_t slot = i / per_round() % kRounds * held_ + i % per_round();
  return std::as_writable_bytes(memory_.buffer.slice(slot * kElements, kElements).as<float>())
      .first(static_cast<std::size_t>(reader.blocks().at(needed_[at]).bytes));
}

/// Submits this rank's reads of a round.
void HostBlocks::start(CheckpointReader& reader, std::int64_t round) {
  if (host_.rank() >= readers_) return;
  const std::int64_t first = round * per_round() + host_.rank() * each_;
  const std::int64_t end = std::min(first + each_, std::ssize(needed_));
  for (std::int64_t i = first; i < end && !failure_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    failure_ = checkpoint_failure_of([&] {
      const Block block = reader.blocks().at(needed_[at]);
      auto& file = files_[block.file];
      if (!file) file = reader.open(block.file);
      reading_of(round).push_back({at, queue_->read(*file, block.begin, place(reader, at))});
    });
  }
}

/// Waits for this rank's reads of a round, verifies the blocks, and closes the files that it has
/// passed.
void HostBlocks::verify(CheckpointReader& reader, std::int64_t round) {
  for (const auto& [at, ticket] : std::exchange(reading_of(round), {})) {
    CheckpointFailure failure =
        checkpoint_failure_of([&, number = needed_[at], at = at, of = ticket] {
          queue_->wait(of);
          reader.check_block(number, place(reader, at));
        });
    if (!failure_) failure_ = std::move(failure);
  }
  const std::vector<Reading>& next = reading_of(round + 1);
  if (next.empty()) return;
  const std::size_t file = reader.blocks().at(needed_[next.front().at]).file;
  files_.erase(files_.begin(), files_.lower_bound(file));
}

/// Gives every rank of the host the blocks of a round; false if a rank has failed.
bool HostBlocks::share(std::int64_t round) {
  if (host_.size() == 1) return !failure_;
  const Tag tag{std::string(kLabel), {}};
  std::int32_t failed = failure_ ? 1 : 0;
  host_all_reduce(host_, device_, View::of(std::span(&failed, 1)), ReduceOp::sum, tag);
  if (failed > 0) return false;
  if (memory_.shared) return true;
  Slices blocks{memory_.buffer.slice(round % kRounds * held_ * kElements, held_ * kElements), {}};
  for (std::int64_t rank = 0; rank < host_.size(); ++rank) {
    blocks.ranges.push_back(
        {std::min(rank, readers_) * each_ * kElements, rank < readers_ ? each_ * kElements : 0});
  }
  host_all_gather(host_, device_, blocks, tag);
  return true;
}

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
