// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "base/mixed_bits.h"
#include "base/seconds_since.h"
#include "bench/random_weights.h"
#include "bench/section.h"
#include "bench/timing.h"
#include "inference/generator.h"

namespace zero::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Random numbers of a seed, in [0, 1).
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  double next() { return static_cast<double>(split_mix(seed_, counter_++) >> 11) * 0x1p-53; }
  double exponential(double mean) { return -mean * std::log1p(-next()); }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

/// Requests of prompts and answers whose lengths are exponentially distributed around these means:
/// most are short, some are as long as the context.
struct Mix {
  std::int64_t requests = 0;
  double prompt = 32;
  double answer = 64;
  std::int64_t longest = 512;  // of a prompt with its answer

  std::vector<GenerationRequest> made(std::int64_t vocabulary) const {
    Random random(7);
    std::vector<GenerationRequest> all;
    for (std::int64_t i = 0; i < requests; ++i) {
      const auto length = [&](double mean) {
        const auto whole = 1 + static_cast<std::int64_t>(random.exponential(mean));
        return std::min(whole, longest / 2);
      };
      GenerationRequest request;
      request.prompt.resize(static_cast<std::size_t>(length(prompt)));
      for (std::uint32_t& token : request.prompt) {
        token = static_cast<std::uint32_t>(random.next() * static_cast<double>(vocabulary));
      }
      request.max_tokens = length(answer);
      all.push_back(std::move(request));
    }
    return all;
  }
};

/// To be generated.
double tokens_of(const std::vector<GenerationRequest>& requests) {
  double tokens = 0;
  for (const GenerationRequest& each : requests) tokens += static_cast<double>(each.max_tokens);
  return tokens;
}

/// When the tokens of requests came, in seconds.
struct Times {
  std::vector<double> first;    // since the request arrived
  std::vector<double> between;  // two tokens of one request
  std::int64_t tokens = 0;
  std::int64_t cancelled = 0;
  std::int64_t preemptions = 0;
  double seconds = 0;

  static double quantile(std::vector<double>& of, double part) {
    const auto at =
        of.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(of.size() - 1));
    std::nth_element(of.begin(), at, of.end());
    return *at;
  }
};

/// Answers requests that arrive at these seconds; at 0 all at once. Every tenth is cancelled at its
/// third token if `cancels`.
Times answer(InferenceModel& model, const GeneratorOptions& options,
             const std::vector<GenerationRequest>& requests, const std::vector<double>& arrivals,
             bool cancels) {
  Generator generator(model, options);
  Times times;
  const auto begin = Clock::now();
  std::size_t next = 0;
  while (next < requests.size() || !generator.idle()) {
    for (; next < requests.size() && arrivals[next] <= seconds_since(begin); ++next) {
      const bool stops = cancels && next % 10 == 9;
      auto last = std::make_shared<double>(-1);
      const double arrival = arrivals[next];
      generator.submit(requests[next], {.on_token =
                                            [&times, &generator, last, begin, arrival, stops,
                                             count = 0](const GeneratedToken& token) mutable {
                                              const double now = seconds_since(begin);
                                              *last < 0 ? times.first.push_back(now - arrival)
                                                        : times.between.push_back(now - *last);
                                              *last = now;
                                              ++times.tokens;
                                              if (stops && ++count == 3)
                                                generator.cancel(token.request);
                                              return Flow::more;
                                            },
                                        .on_end =
                                            [&times](const GenerationEnd& end) {
                                              if (end.reason == FinishReason::cancelled)
                                                ++times.cancelled;
                                            }});
    }
    if (!generator.step()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // nothing has arrived
    }
  }
  times.seconds = seconds_since(begin);
  times.preemptions = generator.scheduler().preemptions();
  return times;
}

/// Many requests of one process: continuous batches beside fixed ones, and how long requests wait
/// under load.
class Serving final : public Section {
 public:
  std::string name() const override { return "serving"; }
  std::string summary() const override {
    return "generating for many requests: continuous beside fixed batches, and times to the first "
           "token and between tokens under load";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--serving-dtype", dtype_, "fp32, bf16, fp16")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
        ->capture_default_str();
    command.add_option("--serving-rounds", rounds_, "turns of both ways of batching")
        ->capture_default_str();
    command.add_option("--serving-load", load_, "arrivals, as a part of what can be answered")
        ->capture_default_str();
  }
  void run(Context& context) override {
    context.alone([&] { measure(context); });
  }

 private:
  static constexpr std::int64_t kSlots = 16;
  static constexpr std::int64_t kRequests = 128;  // at once
  static constexpr std::int64_t kLoadRequests = 256;

  void measure(Context& context) const {
    const DecoderShape config = decoder_shape({{"name", "gpt2-124m"}});
    const auto device = cpu::open({.threads = context.threads()});
    InferenceModel model(
        *device, config,
        {.dtype = dtype_from_name(dtype_), .requests = kSlots, .request_tokens = Mix().longest});
    fill_with_random_weights(model);
    const std::vector<GenerationRequest> requests =
        Mix{.requests = kRequests}.made(model.vocabulary());
    const std::vector<double> at_once(requests.size(), 0);
    const double tokens = tokens_of(requests);
    std::vector<double> continuous, fixed, padded;
    for (int round = 0; round < rounds_; ++round) {
      padded.push_back(tokens / fixed_seconds(model, to_the_longest(requests)));
      fixed.push_back(tokens / fixed_seconds(model, requests));
      continuous.push_back(tokens / answer(model, {}, requests, at_once, false).seconds);
    }
    const double rate = median_rate(continuous);
    for (const auto& [limit, of] :
         {std::pair("fixed batches whose rows all go on to the longest", &padded),
          std::pair("fixed batches", &fixed)}) {
      add(context.report(),
          fmt::format("gpt2-124m, {} requests, continuous; limit: {}", kRequests, limit), rate,
          *std::max_element(continuous.begin(), continuous.end()), "tokens/s", median_rate(*of));
    }
    under_load(context.report(), *device, config, rate);
  }

  // Batches of kSlots requests, each begun once all before have ended.
  static double fixed_seconds(InferenceModel& model,
                              const std::vector<GenerationRequest>& requests) {
    constexpr auto kBatch = static_cast<std::size_t>(kSlots);
    double seconds = 0;
    for (std::size_t first = 0; first < requests.size(); first += kBatch) {
      const auto batch = std::span(requests).subspan(first, kBatch);
      seconds +=
          answer(model, {}, {batch.begin(), batch.end()}, std::vector(kBatch, 0.0), false).seconds;
    }
    return seconds;
  }

  // Static batches, as transformers' generate() has them: a row that has ended is computed until
  // the batch ends.
  static std::vector<GenerationRequest> to_the_longest(std::vector<GenerationRequest> requests) {
    for (auto first = requests.begin(); first < requests.end();) {
      const auto end = first + std::min<std::ptrdiff_t>(kSlots, requests.end() - first);
      const auto longest = std::max_element(
          first, end, [](const auto& a, const auto& b) { return a.max_tokens < b.max_tokens; });
      const std::int64_t tokens = longest->max_tokens;
      for (; first < end; ++first) first->max_tokens = tokens;
    }
    return requests;
  }

  // An eighth of the blocks that kSlots of the longest requests need.
  void under_load(Report& report, Device& device, const DecoderShape& config, double rate) const {
    InferenceModel model(device, config,
                         {.dtype = dtype_from_name(dtype_),
                          .requests = kSlots,
                          .request_tokens = Mix().longest,
                          .cache_tokens = kSlots * Mix().longest / 8});
    fill_with_random_weights(model);
    const std::vector<GenerationRequest> requests =
        Mix{.requests = kLoadRequests}.made(model.vocabulary());
    const double tokens = tokens_of(requests);
    const double mean_gap = tokens / static_cast<double>(requests.size()) / (load_ * rate);
    Random random(8);
    std::vector<double> arrivals{0};
    while (arrivals.size() < requests.size()) {
      arrivals.push_back(arrivals.back() + random.exponential(mean_gap));
    }
    Times times = answer(model, {}, requests, arrivals, true);
    report.note(fmt::format(
        "{} requests that arrive at random at {:.2f} of the rate above, blocks for an eighth of "
        "{} of the longest: {:.1f} tokens/s, {} cancelled, {} preemptions",
        requests.size(), load_, kSlots, static_cast<double>(times.tokens) / times.seconds,
        times.cancelled, times.preemptions));
    for (const auto& [what, of] :
         {std::pair("first token", &times.first), std::pair("between tokens", &times.between)}) {
      for (const double part : {0.5, 0.99}) {
        const double value = Times::quantile(*of, part);
        add(report, fmt::format("{}, p{:.0f}", what, 100 * part), value, value, "s", 0);
      }
    }
  }

  void add(Report& report, std::string name, double value, double best, std::string unit,
           double limit) const {
    report.add({.section = "serving",
                .name = std::move(name),
                .dtype = dtype_,
                .value = value,
                .best = best,
                .unit = std::move(unit),
                .limit = limit});
  }

  std::string dtype_ = "bf16";
  int rounds_ = 3;
  double load_ = 0.7;
};

}  // namespace

std::unique_ptr<Section> serving_section() { return std::make_unique<Serving>(); }

}  // namespace zero::bench
