// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "architecture/decoder_shape.h"
#include "inference/cache_demand.h"
#include "inference/inference_memory.h"

namespace zero {

struct GenerateFlags;

/// What is to be answered, and where.
struct AnswerNeeds {
  const GenerateFlags& flags;
  const std::string& folder;  ///< of the model that answers; empty: a model of `shape`, of elements
  const DecoderShape* shape = nullptr;
  std::vector<RequestLength> requests{};
  /// Groups of ranks take the requests in turn; or each group gets these.
  enum class Dealt : std::uint8_t { in_turn, to_each } dealt = Dealt::in_turn;
  /// Whether more requests may come, whose beginnings a larger cache would keep.
  enum class Arrivals : std::uint8_t { known, more_come } arrivals = Arrivals::known;
  int world = 1;
  int threads = 1;                                    ///< of a rank
  DeviceKind device{};                                ///< DeviceKind::cpu
  std::optional<std::int64_t> available{};            ///< bytes that a rank can take, if known
  std::function<void(const std::string& line)> tell;  ///< a line for people
};

/// What zero_generate takes of memory, and how, decided before any is taken. Ranks with equal needs
/// decide alike.
struct AnswerPlan {
  DecoderShape decoder{};
  PlannedRanks ranks{};
  InferenceOptions options{};
  InferenceMemory memory{};  ///< of the first rank: no other takes more
  /// Of a model that guesses, which each rank holds whole; its folder is empty if there is none.
  std::string draft_folder{};
  DecoderShape draft_decoder{};
  InferenceOptions draft_options{};
  InferenceMemory draft{};
  CacheDemand demand{};    ///< of the group of ranks that needs most
  std::int64_t limit = 0;  ///< bytes of a rank that were to be kept, or are there; 0: none known
  std::string shortage{};  ///< what is short of the limit, and what would help; empty: nothing

  /// Bytes of a rank's device, the draft's too.
  std::int64_t of_device() const;
};

/// Chooses weights and tensor ranks where they are "auto", and sizes the cache (docs). Reads
/// config.json and, if there are files of weights, their headers. Throws zero::Error naming the
/// flag, file or field that cannot be; a plan that does not fit has a `shortage`: of flags.plan
/// also one that takes more than is available.
AnswerPlan plan_answers(const AnswerNeeds& needs);

/// The plan of `flags` as zero_generate --plan prints it: a row for ranks that take the same, and
/// what fits.
std::string plan_text(const AnswerPlan& plan, const GenerateFlags& flags);

/// " (free on the GPU; 1.00 GiB more are left to CUDA's libraries, kernels and graphs)" behind a
/// limit that is what a GPU has free; else empty.
std::string left_of_gpu_text(const AnswerPlan& plan, const GenerateFlags& flags);

/// "bf16", or "nf4 beside bf16 (head in bf16)".
std::string weights_text(const InferenceOptions& options);
/// The columns of that table but the first: names, and the bytes of a rank; those of its file
/// behind them, if it has one.
std::string memory_header(const InferenceMemory& memory);
std::string memory_cells(const InferenceMemory& memory);

/// Of a plan that has no memory yet: what --cache-tokens or --host-cache-tokens alone takes beyond
/// plan.limit or, without a limit, `available` bytes (0: not known), with flag, need and limit;
/// empty if each of them fits. Takes no memory by their tokens, unlike a plan with_cache().
std::string cache_shortage(const AnswerPlan& plan, const GenerateFlags& flags,
                           std::int64_t available);

/// Plans memory with a cache of so many tokens; of the draft's, at most what its requests fill.
void plan_cache(AnswerPlan& plan, std::int64_t tokens);

/// What a plan is short of its limit, and the settings that would take notably less.
/// `stored`: the format of the folder's weights.
std::string answer_shortage(const AnswerPlan& plan, const GenerateFlags& flags,
                            WeightFormat stored);

}  // namespace zero
