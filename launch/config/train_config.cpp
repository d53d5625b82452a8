// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/train_config.h"

#include <algorithm>
#include <limits>

#include "architecture/decoder_parameters.h"
#include "base/checked_math.h"
#include "launch/config/answers.h"
#include "launch/config/checked_value.h"
#include "launch/faults/fault_actions.h"
#include "launch/process/device_choice.h"
#include "launch/rendezvous/cores.h"

namespace zero {
namespace {

std::optional<std::int64_t> maybe(const Configuration& values, std::string_view path) {
  if (values.is_null(path)) return std::nullopt;
  return values.integer(path);
}

void check_vocabulary(const Configuration& values, std::int64_t vocabulary) {
  const auto size = maybe(values, "vocabulary_size");
  if (!size || *size == vocabulary) return;
  throw refusal_of(
      values, {{"vocabulary_size"}},
      "vocabulary_size is {}, model.vocabulary is {}; make them equal or leave the first out",
      *size, vocabulary);
}

TrainConfig::Data make_data(Configuration& values, const DecoderShape& model) {
  const std::int64_t context = model.context;
  if (values.is_null("data.sequence_length")) {
    values.resolve("data.sequence_length", context, "model.context");
  }
  if (values.is_null("data.tokenizer") && model.vocabulary == 256) {
    values.resolve("data.tokenizer", "bytes", "model.vocabulary 256");
  }
  TrainConfig::Data data{.train = values.texts("data.train"),
                         .validation = values.texts("data.validation"),
                         .sequence_length = values.integer("data.sequence_length"),
                         .shuffle = values.boolean("data.shuffle"),
                         .tokenizer = values.text("data.tokenizer")};
  if (data.sequence_length > context) {
    throw refusal_of(
        values, {{"data.sequence_length", context}},
        "data.sequence_length {} is longer than model.context {}; make it at most that",
        data.sequence_length, context);
  }
  return data;
}

void check_validation(const Configuration& values) {
  const std::int64_t every = values.integer("run.validation_every");
  if (every == 0 || !values.texts("data.validation").empty()) return;
  throw refusal_of(values, {{"run.validation_every"}},
                   "run.validation_every is {}, but data.validation is not given; name its token "
                   "shards (zero_prepare makes them), or leave run.validation_every out",
                   every);
}

/// The source of the initial weights; empty: initial values.
std::string initial_weights(Configuration& values) {
  const std::string text = values.text("run.init");
  if (text == "none") return "";
  if (text.empty() && !values.is_null("model.hf")) {
    values.resolve("run.init", values.text("model.hf"), "model.hf");
  }
  return values.text("run.init");
}

DeviceKind make_device(Configuration& values, int local_world) {
  resolve_device(values, local_world, RanksAre::threads);
  const bool cuda = values.text("run.device") == "cuda";
  if (!cuda && values.text("run.sums") != "exact") {
    throw refusal_of(values, {{"run.sums"}},
                     "run.sums \"fast\" is for GPUs, and run.device is \"cpu\", whose sums are "
                     "exact at full speed; leave it out");
  }
  return cuda ? DeviceKind::cuda : DeviceKind::cpu;
}

/// Checks of silent corruption read values where the host computes with them.
void refuse_corruption_checks(const Configuration& values, const TrainConfig::Run& run,
                              Refusals& refusals) {
  if (run.device == DeviceKind::cpu) return;
  const auto refuse = [&](const char* key) {
    refusals.add(refusal_of(values, {{key}},
                            "{} is {}, and run.device is \"cuda\": the check reads values where "
                            "the host computes with them; leave it out, or give run.device=cpu",
                            key, values.at(key).value.dump()));
  };
  if (run.check_collectives) refuse("run.check_collectives");
  if (run.check_compute_every > 0) refuse("run.check_compute_every");
}

/// A trace that begins after the last step would be empty.
void check_trace(const Configuration& values, std::int64_t steps) {
  const std::int64_t from = values.integer("run.trace_from");
  if (values.is_null("run.trace") || from <= steps) return;
  throw refusal_of(values, {steps > 0 ? KeyValue{"run.trace_from", steps} : KeyValue{"run.trace"}},
                   "run.trace_from is {}, run.steps is {}: no step would be traced; set "
                   "run.trace_from to at most run.steps, or leave run.trace and --trace out",
                   from, steps);
}

TrainConfig::Nonfinite make_nonfinite(const Configuration& values) {
  const bool skips = values.text("run.nonfinite") == "skip";
  if (!skips && values.given("run.nonfinite_limit")) {
    throw refusal_of(
        values, {{"run.nonfinite_limit"}},
        "run.nonfinite_limit is given, but run.nonfinite is \"stop\", which ends the run at the "
        "first such step; set run.nonfinite to \"skip\", or leave the limit out");
  }
  return skips ? TrainConfig::Nonfinite::skip : TrainConfig::Nonfinite::stop;
}

/// Of a trace of memory: its files also hold what is charged when they begin.
constexpr std::int64_t kLeastTrace = std::int64_t{1} << 16;

/// What watches a run's memory.
void make_memory_options(const Configuration& values, TrainConfig::Run& run, Refusals& refusals) {
  if (const auto& growth = values.at("run.memory_growth").value; !growth.is_null()) {
    run.memory_growth = *bytes_of(growth);
  } else if (values.given("run.memory_growth_action")) {
    refusals.add(refusal_of(values, {{"run.memory_growth_action"}},
                            "run.memory_growth_action is given, but run.memory_growth is not: give "
                            "the bytes, or leave the action out"));
  }
  if (values.text("run.memory_growth_action") == "stop") {
    run.growth_action = TrainConfig::Growth::stop;
  }
  run.memory_trace_bytes = *bytes_of(values.at("run.memory_trace_bytes").value);
  if (run.memory_trace.empty() && values.given("run.memory_trace_bytes")) {
    refusals.add(refusal_of(values, {{"run.memory_trace_bytes"}},
                            "run.memory_trace_bytes is given, but run.memory_trace is not: give "
                            "the file, or leave its size out"));
  }
  if (run.memory_trace_bytes < kLeastTrace) {
    refusals.add(refusal_of(values, {{"run.memory_trace_bytes", "64KiB"}},
                            "run.memory_trace_bytes is {}, expected at least {} (64KiB)",
                            run.memory_trace_bytes, kLeastTrace));
  }
}

TrainConfig::Run make_run(Configuration& values, int local_world, Refusals& refusals) {
  if (values.is_null("run.threads")) {
    const ThreadChoice choice = choose_threads(core_facts(local_world));
    values.resolve("run.threads", choice.threads, "auto: " + choice.why);
  }
  const std::int64_t steps = values.integer("run.steps");
  if (values.is_null("steps_per_print")) {
    values.resolve("steps_per_print", std::max<std::int64_t>(1, steps / 20), "run.steps");
  }
  TrainConfig::Run run{
      .steps = steps,
      .seed = static_cast<std::uint64_t>(values.integer("run.seed")),
      .sums = values.text("run.sums") == "fast" ? nccl::Sums::fast : nccl::Sums::exact,
      .threads = static_cast<int>(values.integer("run.threads")),
      .waits = {},
      .log = values.text("run.log"),
      .profile = values.boolean("run.profile"),
      .trace = values.text("run.trace"),
      .trace_from = values.integer("run.trace_from"),
      .trace_steps = values.integer("run.trace_steps"),
      .trace_events = values.integer("run.trace_events"),
      .flight_folder = values.text("run.flight_folder"),
      .memory_trace = values.text("run.memory_trace"),
      .init = initial_weights(values),
      .save_weights = values.text("run.save_weights"),
      .validation_every = values.integer("run.validation_every"),
      .validation_sequences = values.integer("run.validation_sequences"),
      .steps_per_print = values.integer("steps_per_print"),
      .nonfinite_limit = values.integer("run.nonfinite_limit"),
      .check_collectives = values.boolean("run.check_collectives"),
      .check_compute_every = values.integer("run.check_compute_every")};
  refusals.collect([&] { check_trace(values, steps); });
  make_memory_options(values, run, refusals);
  refusals.collect([&] { check_validation(values); });
  refusals.collect([&] { run.device = make_device(values, local_world); });
  refuse_corruption_checks(values, run, refusals);
  refusals.collect([&] { run.waits = make_wait_limits(values); });
  make_watchdog(values, run, refusals);
  refusals.collect([&] { run.nonfinite = make_nonfinite(values); });
  return run;
}

/// `ranks` is the number of tensor groups: the ranks of one group compute the same micro-batches.
Batch make_batch(Configuration& values, int ranks, int world) {
  const BatchRequest request{.train = maybe(values, "train_batch_size"),
                             .micro = maybe(values, "train_micro_batch_size_per_gpu"),
                             .accumulation = maybe(values, "gradient_accumulation_steps")};
  Batch batch;
  try {
    batch = infer_batch(request, ranks);
  } catch (const Refusal& refusal) {
    const std::string groups =
        ranks == world ? ""
                       : fmt::format(" (world: the {} ranks are {} groups of mesh.tensor {})",
                                     world, ranks, world / ranks);
    throw Refusal(values.source() + ": " + refusal.what() + groups, refusal.sets());
  }
  const auto note = [&](const char* path, bool given, std::int64_t value) {
    if (!given) values.resolve(path, value, fmt::format("inferred for world {}", ranks));
  };
  note("train_batch_size", request.train.has_value(), batch.train);
  note("train_micro_batch_size_per_gpu", request.micro.has_value(), batch.micro);
  note("gradient_accumulation_steps", request.accumulation.has_value(), batch.accumulation);
  return batch;
}

/// Nothing: as computed.
std::optional<DType> make_gradient_dtype(const Configuration& values, DType compute) {
  if (values.is_null("data_types.grad_accum_dtype")) return std::nullopt;
  const DType gradient = dtype_from_name(values.text("data_types.grad_accum_dtype"));
  if (gradient == DType::fp32 || gradient == compute) return gradient;
  throw refusal_of(
      values, {{"data_types.grad_accum_dtype"}},
      "data_types.grad_accum_dtype is \"{}\", but the run computes in {}; expected {} or \"fp32\"",
      name_of(gradient), name_of(compute),
      compute == DType::fp32 ? "null" : fmt::format("\"{}\"", name_of(compute)));
}

ReductionPolicy make_reduction(const Configuration& values, int stage) {
  if (values.text("reduction") != "boundary") return ReductionPolicy::every_micro_batch;
  if (stage <= 1) return ReductionPolicy::boundary;
  throw refusal_of(
      values, {{"reduction", "every_micro_batch"}},
      "reduction \"boundary\" needs zero_optimization.stage 0 or 1, found {}: it keeps a full "
      "accumulator, which stages 2 and 3 exist to avoid; use \"every_micro_batch\"",
      stage);
}

EngineOptions make_engine_options(Configuration& values, DeviceKind device, Refusals& refusals) {
  if (values.is_null("zero_optimization.overlap_comm")) {
    values.resolve("zero_optimization.overlap_comm", true, "default");
  }
  EngineOptions options;
  options.stage = static_cast<int>(values.integer("zero_optimization.stage"));
  refusals.collect([&] { resolve_autocast(values); });
  options.compute = make_compute_dtype(values);
  refusals.collect([&] { check_compute_dtype(values); });
  refusals.collect([&] { options.gradient = make_gradient_dtype(values, options.compute); });
  refusals.collect([&] { check_communication_dtype(values, options.compute); });
  refusals.collect([&] { options.reduction = make_reduction(values, options.stage); });
  const std::optional<OptimizerConfig> optimizer = make_optimizer_config(values, refusals);
  if (optimizer) options.optimizer = *optimizer;
  options.groups = {{.pattern = "*.bias", .weight_decay = 0.0},
                    {.pattern = "*ln_*", .weight_decay = 0.0},
                    {.pattern = "*norm.weight", .weight_decay = 0.0}};
  options.replica_check_every = static_cast<int>(values.integer("mesh.check_every"));
  options.gradient_clipping = values.number("gradient_clipping");
  const auto size = [&](const char* key) {
    return values.integer("zero_optimization." + std::string(key));
  };
  const std::int64_t bucket = size("reduce_bucket_size");
  options.limits = {
      .prefetch_elements = maybe(values, "zero_optimization.stage3_prefetch_bucket_size"),
      .live_elements = maybe(values, "zero_optimization.stage3_max_live_parameters"),
      .persistence_threshold =
          maybe(values, "zero_optimization.stage3_param_persistence_threshold"),
      .reuse_distance = size("stage3_max_reuse_distance"),
      .reduce_bucket_elements = bucket > 0 ? bucket : std::numeric_limits<std::int64_t>::max()};
  options.overlap = values.boolean("zero_optimization.overlap_comm");
  options.tiers = make_tiers(values, device, refusals);
  options.graphs = values.boolean("run.graphs");
  options.seed = static_cast<std::uint64_t>(values.integer("run.seed"));
  if (optimizer) {
    refusals.collect([&] { at_place(values.source(), [&] { validate(options); }); });
  }
  return options;
}

std::int64_t divided(std::int64_t train, const char* by_name, std::int64_t by, int world) {
  const std::int64_t product = checked_mul(by, world);
  if (train % product != 0) {
    const std::int64_t next = round_up(train, product);
    throw Refusal(fmt::format("train_batch_size {} is not a multiple of {} {} x world {} = {}; set "
                              "train_batch_size to {} or change {} or the number of ranks",
                              train, by_name, by, world, product, next, by_name),
                  {override_of("train_batch_size", next)});
  }
  return train / product;
}

std::vector<std::string> units_of_model(const DecoderShape& model) {
  std::vector<std::string> names;
  for (const auto& unit : DecoderParameters(DecoderSplit::of(model, 0, 1)).units) {
    names.push_back(unit.name);
  }
  return names;
}

}  // namespace

bool chosen_by_auto(const Configuration& values, std::string_view key) {
  return values.at(key).source.starts_with("auto: ");
}

TrainConfig make_train_config(Configuration values, int world, int local_world, Refusals refusals) {
  const bool elastic = refusals.collect([&] { check_elastic(values); });
  // All ranks that came read what is refused; what else is wrong is so for those that it would have
  // take part.
  if (elastic && !refusals.empty()) world = elastic_ranks(values, world);
  TrainConfig config;
  config.world = world;
  const bool has_model = refusals.collect([&] { config.model = make_model_shape(values); });
  if (has_model) {
    refusals.collect([&] { check_vocabulary(values, config.model.vocabulary); });
    refusals.collect([&] { config.data = make_data(values, config.model); });
  }
  refusals.collect(
      [&] { config.run = make_run(values, local_world > 0 ? local_world : world, refusals); });
  config.checkpoints = make_checkpoints(values, refusals);
  const bool has_faults = !values.is_null("run.faults");
  config.run.faults = make_faults(values,
                                  {.world = world,
                                   .device = config.run.device,
                                   .memory_is_limited = has_faults && memory_is_limited(),
                                   .environment = process_environment(),
                                   .units = has_model && has_faults ? units_of_model(config.model)
                                                                    : std::vector<std::string>{}},
                                  refusals);
  const bool has_mesh = refusals.collect([&] { config.mesh = make_mesh_shape(values, world); });
  refusals.collect([&] { config.tensor = make_tensor_options(values); });
  if (has_model && has_mesh) {
    // A model that the tensor axis cannot divide: before any rank builds a part of it.
    const int ranks = config.mesh.tensor;
    refusals.collect([&] {
      at_place(fmt::format("{}: mesh.tensor is {}", values.source(), ranks),
               [&] { config.model.validate(ranks); });
    });
  }
  if (has_model) config.recompute = make_recompute(values, config.model.layers, refusals);
  if (has_mesh)
    refusals.collect([&] { config.batch = make_batch(values, config.data_ranks(), world); });
  refusals.collect(
      [&] { config.engine = make_engine_options(values, config.run.device, refusals); });
  refusals.collect([&] { config.loss_scale_rule = make_loss_scale_rule(values); });
  refusals.collect([&] { config.learning_rates = make_rates(values); });
  refusals.raise(values);
  if (std::string warning = warmup_warning(values); !warning.empty()) {
    config.warnings.push_back(std::move(warning));
  }
  config.values = std::move(values);
  return config;
}

Batch infer_batch(const BatchRequest& request, int world) {
  const auto& [train, micro, accumulation] = request;
  if (train && micro && accumulation) {
    const std::int64_t product = checked_mul(checked_mul(*micro, *accumulation), world);
    if (*train == product) return {*train, *micro, *accumulation};
    const bool divides = *train % checked_mul(*micro, world) == 0;
    throw Refusal(
        fmt::format("train_batch_size {} is not train_micro_batch_size_per_gpu {} x "
                    "gradient_accumulation_steps {} x world {} = {}; leave one of the three out",
                    *train, *micro, *accumulation, world, product),
        {divides ? "gradient_accumulation_steps=null" : "train_batch_size=null"});
  }
  if (train && micro) {
    return {*train, *micro, divided(*train, "train_micro_batch_size_per_gpu", *micro, world)};
  }
  if (train && accumulation) {
    return {*train, divided(*train, "gradient_accumulation_steps", *accumulation, world),
            *accumulation};
  }
  if (train) return {*train, divided(*train, "gradient_accumulation_steps", 1, world), 1};
  if (!micro) {
    throw Refusal(
        "neither train_batch_size nor train_micro_batch_size_per_gpu is given (\"auto\" counts as "
        "not given); write a number for at least one of them",
        {"train_micro_batch_size_per_gpu=1"});
  }
  const std::int64_t steps = accumulation.value_or(1);
  return {checked_mul(checked_mul(*micro, steps), world), *micro, steps};
}

TrainConfig without_saves(TrainConfig config) {
  config.checkpoints = {};
  return config;
}

}  // namespace zero
