// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "base/cgroup.h"
#include "base/error.h"
#include "collectives/agreement.h"
#include "device/device.h"
#include "inference/inference_model.h"
#include "launch/generate/answer_models.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/answer_session.h"
#include "launch/generate/generate_flags.h"
#include "launch/process/quantity.h"

namespace zero {

AnswerNeeds AnswerSession::needs(const std::vector<AcceptedPrompt>& prompts) const {
  AnswerNeeds needs{.flags = flags_,
                    .folder = folder_,
                    .world = ranks_.count(),
                    .threads = threads_,
                    .device = device_kind_,
                    .tell = [this](const std::string& line) { tell(line); }};
  for (const AcceptedPrompt& each : prompts) {
    needs.requests.push_back(
        {std::ssize(each.request.prompt), each.request.max_tokens, each.request.priority});
  }
  return needs;
}

// A GPU is asked only if a plan needs it: to be asked, it is opened.
std::optional<std::int64_t> AnswerSession::available_on(DeviceKind kind, int ranks) const {
  if (kind == DeviceKind::cpu) return available(ranks);
  const bool chooses = flags_.weights == "auto" || flags_.tensor == GenerateFlags::kAutoTensor;
  if (flags_.memory_limit > 0 || !(chooses || flags_.plan)) return std::nullopt;
  try {
    return free_for_plans_on_gpu();
  } catch (const Error& error) {
    if (!flags_.plan) throw;
    fail("{}; or give --memory-limit, such as 80GB, to plan for a GPU elsewhere", error.what());
  }
}

std::optional<std::int64_t> AnswerSession::available(int ranks) const {
  std::optional<std::int64_t> bytes = available_memory();
  if (bytes) *bytes /= ranks;
  return bytes;
}

// All ranks decide by that of the rank that has least.
std::optional<std::int64_t> AnswerSession::least_available() {
  const std::int64_t own = available(ranks_.on_this_host()).value_or(-1);
  std::int64_t least = own;
  for (const std::string& of_rank : ranks_.gather(std::to_string(own))) {
    least = std::min<std::int64_t>(least, std::stoll(of_rank));
  }
  return least < 0 ? std::nullopt : std::optional(least);
}

void AnswerSession::open(const std::vector<AcceptedPrompt>& prompts) { open(needs(prompts)); }

void AnswerSession::open_for_terminal() {
  AnswerNeeds of = needs({});
  of.requests.push_back({.prompt = encoder_.context() - 1, .answer = 1});
  of.arrivals = AnswerNeeds::Arrivals::more_come;
  open(of);
}

void AnswerSession::open(const AnswerNeeds& needs) {
  phase("load");
  AnswerNeeds all = needs;
  const std::optional<std::int64_t> available = least_available();
  all.available = device_kind_ == DeviceKind::cpu ? available : available_on(device_kind_, 1);
  plan_ = std::make_unique<AnswerPlan>(plan_answers(all));
  ZERO_CHECK(plan_->shortage.empty(), "out of memory before the start: {}", plan_->shortage);
  const MeshShape& shape = plan_->ranks.shape;
  if (flags_.tensor == GenerateFlags::kAutoTensor) ranks_.lay_out(shape.replicate, shape.tensor);
  try {
    models_ = std::make_unique<AnswerModels>(
        AnswerModels::Parts{.flags = flags_,
                            .folder = folder_,
                            .plan = *plan_,
                            .ranks = ranks_,
                            .available = available,
                            .device = device_.get(),
                            .say = [this](const std::string& text) { say_text(text); },
                            .on_phase = [this](std::string_view name) { phase(name); }});
  } catch (const AgreedError& error) {
    tell_other_copies(error);
    throw;
  }
}

AnswerPlan AnswerSession::plan(const std::vector<AcceptedPrompt>& prompts, int world) {
  AnswerNeeds of = needs(prompts);
  of.world = world;
  of.device = device_kind(flags_, world);
  of.available = available_on(of.device, flags_.start.local_world);
  if (prompts.empty()) {
    of.requests.assign(static_cast<std::size_t>(flags_.requests),
                       {.prompt = 1, .answer = encoder_.context() - 1});  // all grow together
    of.dealt = AnswerNeeds::Dealt::to_each;
  }
  return plan_answers(of);
}

// What was taken beside the plan, and how much of the cache was used: of the first rank.
void AnswerSession::print_memory() {
  const MemorySnapshot memory = models_->model().device().ledger().snapshot();
  const std::int64_t used = sum_of(memory.peak);
  const std::int64_t planned =
      plan_->memory.total() + (plan_->draft_folder.empty() ? 0 : plan_->draft.total());
  const KeyValueCache::Usage usage = models_->model().cache().usage();
  const std::int64_t block = plan_->memory.cache / plan_->memory.blocks;
  const auto percent = [](std::int64_t part, std::int64_t of) {
    return of == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(of);
  };
  say("memory{}: {} of {} planned ({:.0f} %); cache: at most {} of {} blocks used, {} of {} "
      "({:.0f} %), and these on average {:.0f} % full\n",
      ranks_.count() > 1 ? " of the first rank" : "", size_text(used), size_text(planned),
      percent(used, planned), usage.most_used, usage.total, size_text(usage.most_used * block),
      size_text(usage.total * block), percent(usage.most_used, usage.total),
      percent(usage.held, usage.places));
}

}  // namespace zero
