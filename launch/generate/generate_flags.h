// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/memory_ledger.h"
#include "inference/matrix_roles.h"
#include "launch/generate/prompt.h"
#include "launch/generate/sampling_choice.h"
#include "launch/rendezvous/start.h"
#include "ops/cache_shape.h"
#include "tiers/tier.h"

namespace zero {

class Device;
enum class DeviceKind : std::uint8_t;
enum class LogProbabilities : std::uint8_t;

/// How ranks share weights, as a DeepSpeed configuration says it.
struct ShardedWeights {
  std::optional<int> stage{};          ///< 0: each rank keeps all; 3: each a part
  std::optional<double> prefetched{};  ///< elements that are gathered ahead of use
  std::optional<double> live{};        ///< elements that are gathered at once, at most
};

/// The arguments of zero_generate.
struct GenerateFlags {
  std::string model{};
  std::vector<std::string> prompts{};
  std::vector<std::string> prompt_ids{};
  std::string file{};
  std::string compare{};         ///< a text by which formats are compared, instead of prompts
  std::string save_quantized{};  ///< a folder that is written, instead of answers
  bool chat = false;             ///< texts are a user's messages
  /// PromptSettings::template_values of messages that have none of their own.
  nlohmann::json template_values{};
  std::string tokenizer{};
  PromptSettings settings{};    ///< what is sampled: before the model's own and `sampling`
  SamplingChoice sampling{};    ///< before the model's own
  std::string device = "auto";  ///< "cpu", "cuda" or "auto"
  std::string dtype = "fp32";
  std::string weights{};                   ///< empty: as the folder has them; "auto"
  MatrixRoles keep{};                      ///< matrices that stay in dtype
  std::optional<double> int8_threshold{};  ///< changes nothing; a line says why
  std::string cache_dtype = "dtype";
  std::int64_t requests = 8;      ///< at once
  std::int64_t cache_tokens = 0;  ///< of all requests; 0: as many as they can need at once
  std::int64_t block_tokens = kCacheChunk;
  std::int64_t memory_limit = 0;       ///< bytes of a rank; 0: none
  std::int64_t host_cache_tokens = 0;  ///< of blocks in host memory
  std::string draft{};                 ///< empty, "prompt", or the folder of a model
  std::int64_t draft_tokens = 3;       ///< guessed in a step, at most
  /// Of a prompt typed at a terminal, with its answer, at most; kUsualContext if not given.
  std::optional<std::int64_t> context{};
  static constexpr std::int64_t kUsualContext = 8192;
  std::string threads = "auto";
  int replicate = 1;  ///< copies of the model, of several ranks
  int tensor = 1;     ///< ranks that compute a layer together, or kAutoTensor
  static constexpr int kAutoTensor = 0;
  std::int64_t windows = 0;  ///< blocks whose weights are whole at a time; 0: the usual number
  ShardedWeights sharded{};  ///< behind the options above
  /// Of blocks' weights, which are in files in its folder; none: in memory.
  TierFileOptions offload{.folder = {}, .queue = {.depth = 8, .one_by_one = false}};
  int local_ranks = kNoLocalRanks;
  double collective_warning = 30;  ///< seconds until a rank that others wait for is named; 0: never
  // Of several ranks.
  bool watchdog = true;
  double hang_timeout = 0;               ///< seconds; 0: as WatchdogOptions::hang_seconds says
  std::string flight_folder{};           ///< empty: flight files are in memory alone
  Start start{};                         ///< how the program was started
  LogProbabilities log_probabilities{};  ///< LogProbabilities::left_out
  bool plan = false;                     ///< what memory would be taken, instead of answers
  bool json = false;
  bool print_ids = false;         ///< of prompts
  std::set<std::string> given{};  ///< the options of the command line: "--dtype"

  bool gave(const std::string& option) const { return given.contains(option); }
  bool has_prompts() const { return !prompts.empty() || !prompt_ids.empty() || !file.empty(); }
};

/// GenerateFlags::template_values of a JSON object. Throws zero::Error naming the flag.
nlohmann::json parse_template_values(std::string_view text);

/// GenerateFlags::keep of "head,embedding". Throws zero::Error naming the flag, the name that is
/// none, and what it may have been.
MatrixRoles parse_kept_matrices(std::string_view names);
/// GenerateFlags::tensor of "auto" or a number. Throws zero::Error naming the flag.
int parse_tensor(const std::string& text);

/// The copies of the model that `world` ranks hold with so many tensor ranks each.
int replicas_of(const GenerateFlags& flags, int world, int tensor);

/// A line about the program's work, for people. Any thread.
void say_line(const std::string& line);

/// The Hugging Face folder that `path` means: itself, if it has a config.json; the weights of a
/// checkpoint; those of the newest complete one in a folder of checkpoints: `say` then hears, in
/// lines, which one that is and which newer ones were passed over. Throws zero::Error naming the
/// path, and the flag that gave it, if there is none.
std::string find_model_folder(files::FileSystem& files, const std::string& path,
                              const std::function<void(const std::string& line)>& say,
                              std::string_view flag = "--model");

/// The threads of one of the ranks of this host that flags.threads asks for. Throws zero::Error.
int threads_of(const GenerateFlags& flags, int local_ranks = 1);

/// The kind of device that flags.device asks for, for a job of so many ranks: "auto" means the
/// first GPU, or the CPU if there is none or this build has no code for it, and with several ranks
/// the CPU. Throws zero::Error if several ranks are to use GPUs.
DeviceKind device_kind(const GenerateFlags& flags, int ranks = 1);
/// A line for people if "auto" leaves a GPU alone for which this build has no code; empty
/// otherwise.
std::string device_note(const GenerateFlags& flags, int ranks = 1);

/// Bytes of the first GPU that a plan may take: what is free, but cuda::kLeftToLibraries. Throws
/// zero::Error if there is no GPU, or no more is free.
std::int64_t free_for_plans_on_gpu();

/// A device of a kind. `threads`: of a CPU; `reserve`: planned bytes of a GPU's buffers.
std::unique_ptr<Device> open_device(DeviceKind kind, int threads, const BytesByClass& reserve = {});
}  // namespace zero
