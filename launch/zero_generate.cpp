// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "inference/inference_options.h"
#include "launch/generate/answer.h"
#include "launch/generate/deepspeed_inference.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/generate_program.h"
#include "launch/process/command_line.h"
#include "launch/process/cpu_limit.h"
#include "launch/process/quantity.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/start.h"
#include "launch/telemetry/output.h"
#include "launch/watch/fault_finder.h"
#include "weights/hf/config.h"

namespace {

// CLI11 would take a minus sign, and wrap what is too large.
std::string any_seed(const std::string& value) {
  return zero::whole_number(value, 0, std::numeric_limits<std::uint64_t>::max())
             ? ""
             : "is " + value + "; expected a whole number from 0 to 18446744073709551615";
}
std::string whole_chunks(const std::string& value) {
  const auto tokens = zero::whole_number(value, 1, std::numeric_limits<std::int64_t>::max());
  return tokens && *tokens % zero::kCacheChunk == 0
             ? ""
             : fmt::format("is {}; expected a multiple of {} up to the model's context",
                           zero::printable_line(value), zero::kCacheChunk);
}
/// Of seconds up to `most`, 0 for none; CLI::Range takes what is no number too.
CLI::Validator seconds_of(double least, double most) {
  return {[=](const std::string& value) {
            double seconds = -1;
            const bool good = CLI::detail::lexical_cast(value, seconds) &&
                              (seconds == 0 || (seconds >= least && seconds <= most));
            return good ? ""
                        : fmt::format("is {}; expected {:g} to {:g} s, or 0",
                                      zero::printable_line(value), least, most);
          },
          "SECONDS"};
}
std::string has_name(const std::string& value) { return value.empty() ? "expected a name" : ""; }

void add_prompts(CLI::App& app, zero::GenerateFlags& flags) {
  app.add_option("--model", flags.model,
                 "a Hugging Face folder; a checkpoint of zero_train, or its folder weights; or a "
                 "folder of checkpoints, of which the newest complete one is meant")
      ->required();
  CLI::Option* const prompt =
      app.add_option("--prompt", flags.prompts, "a text to continue; may be given again")
          ->allow_extra_args(false);
  CLI::Option* const ids =
      app.add_option("--prompt-ids", flags.prompt_ids, "token ids, as 1,2,3; may be given again")
          ->allow_extra_args(false);
  CLI::Option* const file =
      app.add_option(
             "--file", flags.file,
             "a file of prompts, one JSON object a line: \"prompt\", \"ids\" or \"messages\", and "
             "settings under the names of the flags, with _ for -, before the flags'")
          ->excludes(prompt)
          ->excludes(ids)
          ->check(has_name);
  app.add_option("--compare", flags.compare,
                 "instead of answering: compare all formats of weights and cache by their bytes, "
                 "speed and perplexity of this text")
      ->excludes(prompt)
      ->excludes(ids)
      ->excludes(file)
      ->check(has_name);
  CLI::Option* const chat = app.add_flag(
      "--chat", flags.chat, "a text is a user's message, written as the model's chat is");
  app.add_option_function<std::string>(
      "--chat-template-kwargs",
      [&flags](const std::string& text) {
        flags.template_values = zero::parse_template_values(text);
      },
      "a JSON object: variables for the chat template, as {\"enable_thinking\": false}, where a "
      "line of --file gives no chat_template_kwargs");
  app.add_flag("--special", flags.settings.special,
               "a text is a whole rendered prompt: special tokens written in it act, and no token "
               "is put before it")
      ->excludes(chat);
  app.add_option("--tokenizer", flags.tokenizer,
                 "\"bytes\", a tokenizer.json, a SentencePiece model, or a folder of one; by "
                 "default that of the model");
}

void add_settings(CLI::App& app, zero::GenerateFlags& flags) {
  zero::SamplingChoice& sampling = flags.sampling;
  app.add_option("--max-tokens", flags.settings.max_tokens,
                 "to generate; by default max_new_tokens of the model's generation_config.json, or "
                 "else 128; less if the context ends before")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--temperature", sampling.temperature,
                 "0: always the most likely token, whatever top-k, top-p and min-p are. This and "
                 "the next four are by default what the model's generation_config.json says "
                 "(without \"do_sample\": true a temperature of 0), or else 0");
  app.add_option("--top-k", sampling.top_k,
                 "keep that many most likely tokens; 0: all; by default the model's, or 0");
  app.add_option(
      "--top-p", sampling.top_p,
      "keep the most likely tokens whose probabilities reach it; by default the model's, or 1");
  app.add_option("--min-p", sampling.min_p,
                 "drop tokens below that part of the most likely one's probability; by default the "
                 "model's, or 0");
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "makes tokens of the prompt and the answer less likely; 1: not; by default the "
                 "model's, or 1");
  app.add_option("--seed", flags.settings.sampling.seed,
                 "of the random numbers; the same seed, the same answer")
      ->check(any_seed)
      ->capture_default_str();
  app.add_option("--stop", flags.settings.stop,
                 "end before this text, or at the special token of this name; may be given again")
      ->allow_extra_args(false);
}

void add_weights(CLI::App& app, zero::GenerateFlags& flags) {
  app.add_option("--device", flags.device, "auto: the first GPU that can be used, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--dtype", flags.dtype, "of activations, cache and weights")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  CLI::Option* const weights =
      app.add_option("--weights", flags.weights,
                     "of matrices: as --dtype says; int8: codes of 8 bits; nf4: 16 levels of a "
                     "normal distribution, a scale for 64 elements; q4: 16 equal steps, a scale "
                     "for 128; auto: the first of dtype (without --dtype fp32, then bf16), int8, "
                     "nf4, q4 that fits --memory-limit, or what is available. By default dtype, or "
                     "what --save-quantized, GPTQ or AWQ (4 bits) wrote")
          ->check(CLI::IsMember({"dtype", "int8", "nf4", "q4", "auto"}));
  app.add_option_function<std::string>(
         "--keep",
         [&flags](const std::string& names) { flags.keep = zero::parse_kept_matrices(names); },
         "matrices that stay as --dtype says beside codes of --weights, as head,embedding: "
         "embedding, head, and of all blocks qkv, projection (behind attention), hidden and output "
         "(the MLP's first and second). A head that is the embedding is kept by either name")
      ->needs(weights);
  app.add_option("--save-quantized", flags.save_quantized,
                 "instead of answering: write a folder, a new name, that has the matrices in the "
                 "codes of --weights and answers as they do; takes --dtype and --threads too")
      ->needs(weights)
      ->check(has_name);
  app.add_option("--offload-weights", flags.offload.folder,
                 "a folder on a local disk of each host: a rank's part of the blocks' weights is "
                 "in a file there, without a name and gone with the rank, and read ahead of use, "
                 "once a pass: for models that all ranks together do not hold. CPUs only; changes "
                 "no answer. The last lines tell how many --requests would hide the disk")
      ->check(has_name);
  app.add_option("--llm-int8-threshold", flags.int8_threshold,
                 "changes nothing: " + std::string(zero::kNoThreshold))
      ->group("");
}

void add_cache(CLI::App& app, zero::GenerateFlags& flags) {
  app.add_option("--cache-dtype", flags.cache_dtype,
                 "of cached keys and values: as --dtype says; int8: codes of 8 bits, a scale for a "
                 "token's key or value of one head")
      ->check(CLI::IsMember({"dtype", "int8"}))
      ->capture_default_str();
  app.add_option("--requests", flags.requests, "prompts answered at once; changes no answer")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option_function<std::string>(
      "--memory-limit",
      [&flags](const std::string& size) {
        flags.memory_limit = zero::bytes_with_unit(size, "--memory-limit");
      },
      "memory that a rank may take, as 8GiB or 8GB (10^9 bytes): the cache takes what weights and "
      "activations leave, up to all that the prompts with their answers can fill");
  app.add_option(
         "--block-tokens", flags.block_tokens,
         "of a block of the cache, a multiple of 16 up to the model's context; changes no answer")
      ->check(whole_chunks)
      ->capture_default_str();
  app.add_option("--cache-tokens", flags.cache_tokens,
                 "tokens that the cache holds of all requests; where they need more, the last are "
                 "preempted and read again later; what they do not need keeps beginnings that may "
                 "come again. By default as many as requests of these lengths need at once")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--host-cache-tokens", flags.host_cache_tokens,
                 "tokens for which each rank has blocks in host memory beside the cache: what that "
                 "cannot keep, of preempted prompts and of beginnings that may come again, is "
                 "copied there and back instead of being read again; 0: none")
      ->check(CLI::Range(std::int64_t{0}, zero::InferenceOptions::kMostHostTokens))
      ->capture_default_str();
  app.add_option("--context", flags.context,
                 "tokens of a prompt typed at a terminal, with its answer, at most (or the model's "
                 "context, if that is less), by default 8192: the cache is that large; or of each "
                 "request of --plan without prompts")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40));
}

void add_draft(CLI::App& app, zero::GenerateFlags& flags) {
  CLI::Option* const draft = app.add_option(
      "--draft", flags.draft,
      "speculative decoding: guess the next tokens, so that a pass reads several: a smaller "
      "model's folder, or \"prompt\", for answers that repeat their prompts; changes no answer");
  draft->check(has_name);
  app.add_option("--draft-tokens", flags.draft_tokens, "to guess in a step, at most")
      ->needs(draft)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

void add_ranks(CLI::App& app, zero::GenerateFlags& flags) {
  app.add_option_function<std::string>(
         "--tensor", [&flags](const std::string& text) { flags.tensor = zero::parse_tensor(text); },
         "of several ranks, so many compute each layer together; the ranks beside them each keep a "
         "part of the weights and answer different prompts; auto: the fewest with which a rank "
         "fits --memory-limit, or what is available")
      ->default_str("1");
  app.add_option("--replicate", flags.replicate, "copies of the model that the ranks hold")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--windows", flags.windows,
                 "of ranks that share weights, or with --offload-weights: blocks whose weights are "
                 "whole at a time, of which all but one are gathered or read ahead; by default 2")
      ->check(CLI::Range(1, 64));
  zero::add_local_ranks(app, flags.local_ranks);
  app.add_option("--collective-warning", flags.collective_warning,
                 "of several ranks: name a rank for which others wait after so many seconds, and "
                 "wait on; 0: never")
      ->check(seconds_of(0.001, 86400))
      ->capture_default_str();
  CLI::Option* const none = app.add_flag_callback(
      "--no-watchdog", [&flags] { flags.watchdog = false; },
      "of several ranks: do not look for ranks that die or hang, of this host and of others, which "
      "are else named within seconds and end the job with status 1");
  app.add_option("--hang-timeout", flags.hang_timeout,
                 "of several ranks: seconds in which a rank that others wait for while it decodes "
                 "must go on, 1 at least; 0: five mean steps, 3 s at least. A wait for standard "
                 "input, or for who reads the answers, is no hang")
      ->excludes(none)
      ->check(seconds_of(zero::kLeastHangSeconds, 1e6))
      ->capture_default_str();
  app.add_option("--flight-folder", flags.flight_folder,
                 "of several ranks: a folder for the files in which each writes what it does, for "
                 "zero_doctor; they go with a job that ends well; by default in memory alone")
      ->check(has_name);
}

void add_run(CLI::App& app, zero::GenerateFlags& flags, std::string& config) {
  app.add_flag("--plan", flags.plan,
               "instead of answering: print what each rank would take, and what fits beside; the "
               "weights are not read: --model may be a config.json alone, or what zero_plan takes "
               "(llama-7b). Without a prompt, of --requests of --context tokens. Status: 1 if it "
               "does not fit. --device cuda with --memory-limit needs no GPU");
  app.add_option("--config", config,
                 "a configuration of DeepSpeed's inference: zero_optimization, bf16, fp16, dtype, "
                 "tensor_parallel, aio; the command line counts before it")
      ->check(has_name);
  app.add_option("--threads", flags.threads, "of a rank; changes no answer")->capture_default_str();
  CLI::Option* const json =
      app.add_flag("--json", flags.json, "print a JSON object a line for each answer, at its end");
  app.add_flag_callback(
         "--log-probabilities",
         [&flags] { flags.log_probabilities = zero::LogProbabilities::shown; },
         "with --json: of each token, as the model gave it")
      ->needs(json);
  app.add_flag(
      "--print-ids", flags.print_ids,
      "tell the token ids of each prompt: on standard error, or with --json as prompt_ids");
  app.set_version_flag("--version", [] { return zero::version_text(); });
  app.footer(std::string("Without a prompt, standard input is one, or each line of a terminal.\n") +
             zero::kCpuLimitHelp + "\n");
}

/// Refuses options that a mode would ignore.
void check_used(const CLI::App& app, std::string_view mode, std::string_view does,
                std::initializer_list<std::string_view> used) {
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_name();
    const bool takes = name == mode || std::ranges::find(used, name) != used.end();
    if (option->count() > 0 && !takes) {
      zero::fail("{} {}; found {} too: leave it out", mode, does, name);
    }
  }
}

void check_mode(const CLI::App& app, const zero::GenerateFlags& flags) {
  if (!flags.save_quantized.empty()) {
    check_used(app, "--save-quantized", "writes a folder and answers nothing",
               {"--model", "--weights", "--dtype", "--threads"});
  }
  ZERO_CHECK(flags.save_quantized.empty() || flags.weights != "auto",
             "--save-quantized: --weights is auto; expected int8, nf4 or q4");
  if (!flags.compare.empty()) {
    check_used(app, "--compare", "measures formats one after another",
               {"--model", "--tokenizer", "--device", "--dtype", "--threads", "--local-ranks"});
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Continues texts, or answers messages, by a model that zero_train trained or a Hugging Face "
      "folder holds. A prompt's answer depends on the prompt, its settings and the model (and on "
      "the date, where a chat template asks for it); --tensor and the kind of processor may change "
      "its last bits.\n"
      "Several ranks: mpirun -np N zero_generate ...; torchrun --no-python, or anything that sets "
      "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; srun -K1; or threads of one "
      "process: --local-ranks N. Each keeps a part of the weights and answers different prompts "
      "(--tensor, --replicate).\n"
      "Status: 0; 1 if a prompt was refused, an answer failed or nothing could be answered; 130 or "
      "143 if SIGINT (Ctrl-C) or SIGTERM ended it.",
      "zero_generate"};
  zero::GenerateFlags flags;
  std::string config;
  add_prompts(app, flags);
  add_settings(app, flags);
  add_weights(app, flags);
  add_cache(app, flags);
  add_draft(app, flags);
  add_ranks(app, flags);
  add_run(app, flags, config);
  return zero::run_program(app, argc, argv, {.speaks = zero::speaks_for_job()}, [&] {
    for (const CLI::Option* const option : app.get_options()) {
      if (option->count() > 0) flags.given.insert(option->get_name());
    }
    check_mode(app, flags);
    flags.start = zero::read_start(zero::process_environment(), flags.local_ranks);
    if (!config.empty()) {
      for (const std::string& line : zero::apply_deepspeed_inference(config, flags)) {
        if (flags.start.rank == 0) zero::say_line(line);
      }
    }
    return zero::generate(flags, &argc, &argv);
  });
}
