// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "base/seconds_since.h"
#include "bench/random_weights.h"
#include "bench/request_mix.h"
#include "bench/section.h"
#include "bench/timing.h"
#include "inference/cache_demand.h"
#include "inference/generator.h"

namespace zero::bench {
namespace {

using Clock = std::chrono::steady_clock;

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
    InferenceModel model(*device, config,
                         {.dtype = dtype_from_name(dtype_),
                          .requests = kSlots,
                          .request_tokens = RequestMix().longest});
    fill_with_random_weights(model);
    const std::vector<GenerationRequest> requests =
        RequestMix{.requests = kRequests}.made(model.vocabulary());
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
    beside_contiguous(context.report(), model, requests);
    under_load(context.report(), *device, config, rate);
  }

  // The same requests with the cache that they need at once, as zero_generate has it by default,
  // beside `contiguous`, whose cache holds the longest for each slot.
  void beside_contiguous(Report& report, InferenceModel& contiguous,
                         const std::vector<GenerationRequest>& requests) const {
    const InferenceOptions& reserved = contiguous.options();
    std::vector<RequestLength> lengths;
    for (const GenerationRequest& each : requests) {
      lengths.push_back({std::ssize(each.prompt), each.max_tokens});
    }
    const CacheDemand demand = cache_demand(
        lengths,
        {.slots = reserved.requests, .rows = reserved.rows, .block_tokens = reserved.block_tokens});
    InferenceOptions planned = reserved;
    planned.cache_tokens = demand.at_once * reserved.block_tokens;
    InferenceModel model(contiguous.device(), decoder_shape({{"name", "gpt2-124m"}}), planned);
    fill_with_random_weights(model);
    const std::vector<double> at_once(requests.size(), 0);
    const double tokens = tokens_of(requests);
    std::vector<double> paged, whole;
    std::int64_t preemptions = 0;
    for (int round = 0; round < rounds_; ++round) {
      whole.push_back(tokens / answer(contiguous, {}, requests, at_once, false).seconds);
      const Times times = answer(model, {}, requests, at_once, false);
      paged.push_back(tokens / times.seconds);
      preemptions += times.preemptions;
    }
    add(report, "cache for what requests need at once; limit: for the longest of each",
        median_rate(paged), *std::max_element(paged.begin(), paged.end()), "tokens/s",
        median_rate(whole));
    report.note(fmt::format(
        "that cache has {} blocks, {:.1f} % of the {} that {} requests reserve for the longest, of "
        "{} tokens; {} preemptions",
        demand.at_once,
        100.0 * static_cast<double>(demand.at_once) / static_cast<double>(demand.contiguous),
        demand.contiguous, reserved.requests, demand.longest * reserved.block_tokens, preemptions));
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
                          .request_tokens = RequestMix().longest,
                          .cache_tokens = kSlots * RequestMix().longest / 8});
    fill_with_random_weights(model);
    const std::vector<GenerationRequest> requests =
        RequestMix{.requests = kLoadRequests}.made(model.vocabulary());
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
