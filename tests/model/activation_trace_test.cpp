// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/activation_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <ostream>
#include <set>

#include "device/lifetime_plan.h"
#include "tests/model/recompute_plans.h"

// Which activations are alive when: found on a device without memory, proven by what a run does
// with a memory whose dead bytes hold garbage at every moment.
namespace zero::testing {
namespace {

struct Traced {
  DecoderShape model = gpt2_of_blocks();
  DType compute = DType::fp32;
  int ranks = 1;  // of the tensor axis
  bool own_rows = false;
  int accumulation = 1;

  TensorOptions tensor() const { return {.sequence_parallel = own_rows, .chunks = 2}; }
  std::string label() const {
    return fmt::format("{}, {}, {} ranks{}", model.family->name, name_of(compute), ranks,
                       own_rows ? " with own rows" : "");
  }
};

void PrintTo(const Traced& traced, std::ostream* out) { *out << traced.label(); }

/// A sealed engine and a model with a listener.
struct Heard {
  Heard(Communicator& world, Device& device, const Traced& traced, const RecomputePlan& plan,
        UnitListener& listener)
      : mesh(world, {1, 1, traced.ranks}),
        engine(mesh, device, {.compute = traced.compute}),
        model(engine, traced.model, kRowOfTokens, &listener, traced.tensor(), plan) {
    engine.seal({.order = model.order(), .accumulation_steps = traced.accumulation});
    model.allocate();
  }
  double train(std::uint32_t seed) {
    const Batch batch = Batch::random(9, 23, seed);
    double loss = 0;
    model.train(View::of(std::span(batch.inputs)), View::of(std::span(batch.targets)), 1.0F / 9,
                View::of(std::span(&loss, 1)));
    engine.device().compute().synchronize();
    return loss;
  }

  Mesh mesh;
  Engine engine;
  Decoder model;
};

struct Life {
  std::vector<LiveRange> ranges;
  std::vector<ActivationTrace::Moment> moments;
  std::int64_t bytes = 0;  // of all activations
  std::vector<LifetimePlan::Place> places;
};

/// As a rank without memory foretells it.
Life foretold(const Traced& traced, const RecomputePlan& plan, int rank = 0) {
  const auto device = planning::open(1);
  const auto nobody = planning::communicator(rank, traced.ranks, BackendKind::local, device.get());
  ActivationTrace trace;
  Heard heard(*nobody, *device, traced, plan, trace);
  Life life;
  for (int i = 0; i < traced.accumulation; ++i) {
    trace.start(heard.model.activations());
    heard.train(1);
  }
  life.ranges = trace.ranges();
  life.moments = trace.moments();
  life.bytes = heard.model.activations().bytes();
  life.places = heard.model.activation_places().places();
  return life;
}

/// Overwrites bytes of the activations before each moment: all that are dead then, or a range.
class Spoiler final : public ActivationTrace {
 public:
  explicit Spoiler(const Life& life) : life_(life) {}
  void spoil(const LiveRange& range, int moment) { chosen_ = {range, moment}; }
  void spoil_nothing() { spoil({}, -1); }
  std::size_t foretold() const { return life_.moments.size(); }
  void start_in(const View& memory) {
    memory_ = memory.as<std::uint8_t>();
    start(memory);
  }

 private:
  void moment_begins() override {
    const int moment = static_cast<int>(moments().size()) - 1;
    if (memory_.empty()) return;
    if (chosen_) {
      if (moment != chosen_->second) return;
      fill(chosen_->first.offset, chosen_->first.bytes);
      chosen_->second = -1;
      return;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> alive;
    for (const LiveRange& range : life_.ranges) {
      if (range.alive_before(moment)) alive.emplace_back(range.offset, range.offset + range.bytes);
    }
    std::ranges::sort(alive);
    std::int64_t end = 0;
    for (const auto& [from, to] : alive) {
      ASSERT_GE(from, end) << "two values in one byte";
      fill(end, from - end);
      end = to;
    }
    fill(end, life_.bytes - end);
  }
  // NaN in every floating type.
  void fill(std::int64_t begin, std::int64_t count) {
    std::memset(memory_.data() + begin, 0xff, static_cast<std::size_t>(count));
  }

  const Life& life_;
  std::optional<std::pair<LiveRange, int>> chosen_;
  std::span<std::uint8_t> memory_;
};

struct TwoSteps {
  std::vector<double> losses;
  double norm = 0;
  std::uint64_t state = 0;
  friend bool operator==(const TwoSteps&, const TwoSteps&) = default;
};

/// Two steps, with the listener of each rank at work in each micro-batch.
TwoSteps trained(const Traced& traced, const RecomputePlan& plan,
                 const std::function<std::unique_ptr<Spoiler>(int rank)>& make) {
  TwoSteps all;
  local::run(traced.ranks, [&](Communicator& world) {
    const auto device = cpu::open({.threads = 1});
    const std::unique_ptr<Spoiler> listener = make(world.rank());
    Heard heard(world, *device, traced, plan, *listener);
    std::vector<double> losses;
    StepReport report;
    for (int step = 0; step < 2; ++step) {
      for (int i = 0; i < traced.accumulation; ++i) {
        listener->start_in(heard.model.activations());
        losses.push_back(heard.train(static_cast<std::uint32_t>(2 * step + i)));
      }
      report = heard.engine.step({.learning_rate = 1e-2});
    }
    EXPECT_EQ(listener->moments().size(), listener->foretold());
    const std::uint64_t state = heard.engine.states().hash();
    if (world.rank() == 0) all = {losses, report.gradient_norm, state};
  });
  return all;
}

/// All of one rank; of several, which take their time, those in which most is exchanged.
std::vector<RecomputePlan> plans_of(const Traced& traced) {
  if (traced.ranks == 1) return recompute_plans();
  return {{},
          with_outputs(partitioned_plan(mixed_plan())),
          RecomputePlan::grouped(kBlocks, 2),
          partitioned_plan(RecomputePlan::full(kBlocks)),
          RecomputePlan::selective(kBlocks, {BlockTensor::qkv, BlockTensor::hidden})};
}

class ActivationLives : public ::testing::TestWithParam<Traced> {};

TEST_P(ActivationLives, AreAllThatARunReads) {
  const Traced& traced = GetParam();
  for (const RecomputePlan& plan : plans_of(traced)) {
    std::vector<Life> lives;
    for (int rank = 0; rank < traced.ranks; ++rank) lives.push_back(foretold(traced, plan, rank));
    const auto of_rank = [&](int rank, bool spoils) {
      auto spoiler = std::make_unique<Spoiler>(lives[static_cast<std::size_t>(rank)]);
      if (!spoils) spoiler->spoil_nothing();
      return spoiler;
    };
    const TwoSteps expected = trained(traced, plan, [&](int rank) { return of_rank(rank, false); });
    EXPECT_EQ(trained(traced, plan, [&](int rank) { return of_rank(rank, true); }), expected)
        << traced.label() << "; " << plan.text();
  }
}

/// Whether a place is of the tensor whose values a range has: "qkv of blocks 1 to 3", "normed of
/// the head", "dx".
bool is_of(const LifetimePlan::Place& place, const LiveRange& range) {
  const std::string name(range.name == "head_gradients" ? "norm_gradients" : range.name);
  if (place.name != name && !place.name.starts_with(name + " of ")) return false;
  if (range.offset < place.offset || range.offset + range.bytes > place.offset + place.bytes)
    return false;
  const char* const rest = place.name.c_str() + name.size();
  long first = -1;
  long last = -1;
  if (std::sscanf(rest, " of blocks %ld to %ld", &first, &last) == 2)
    return first <= range.layer && range.layer <= last;
  if (std::sscanf(rest, " of block %ld", &first) == 1) return first == range.layer;
  return range.layer < 0;
}

using Places = std::vector<const LifetimePlan::Place*>;

bool lie_apart(const LifetimePlan::Place& a, const LifetimePlan::Place& b) {
  return &a == &b || std::ranges::any_of(a.spans, [&](const LifeSpan& x) {
    return std::ranges::any_of(
        b.spans, [&](const LifeSpan& y) { return x.first <= y.last && y.first <= x.last; });
  });
}
/// Places of one tensor for several parts of a micro-batch may have the same bytes: one is meant.
bool lie_apart(const Places& a, const Places& b) {
  return std::ranges::any_of(a, [&](const auto* x) {
    return std::ranges::any_of(b, [&](const auto* y) { return lie_apart(*x, *y); });
  });
}

// Then no order in which places are chosen, and no sizes, lay one over the other. On several ranks
// a collective has ended before the work that uses its result begins, and so has the reading of the
// partial sums that collectives alone read.
TEST_P(ActivationLives, HaveStepsInCommonWhereARunHasBothAtATime) {
  const Traced& traced = GetParam();
  const int apart = traced.ranks == 1 ? 0 : 1;
  for (const RecomputePlan& plan : plans_of(traced)) {
    const Life life = foretold(traced, plan);
    std::vector<Places> places;
    for (const LiveRange& range : life.ranges) {
      Places& own = places.emplace_back();
      for (const LifetimePlan::Place& each : life.places) {
        if (is_of(each, range)) own.push_back(&each);
      }
      EXPECT_FALSE(own.empty()) << range.name << " of block " << range.layer;
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const LiveRange& a = life.ranges[i];
        const LiveRange& b = life.ranges[j];
        if (std::max(a.first, b.first) + apart > std::min(a.last, b.last)) continue;
        if (apart > 0 && (a.name.starts_with("partial") || b.name.starts_with("partial"))) continue;
        EXPECT_TRUE(lie_apart(places[i], places[j]))
            << a.name << " of block " << a.layer << " and " << b.name << " of block " << b.layer
            << "; " << traced.label() << "; " << plan.text();
      }
    }
  }
}

/// The longest-lived range of each tensor.
std::map<std::string_view, LiveRange> longest_of(const Life& life) {
  std::map<std::string_view, LiveRange> longest;
  for (const LiveRange& range : life.ranges) {
    LiveRange& known = longest.try_emplace(range.name, range).first->second;
    if (range.last - range.first > known.last - known.first) known = range;
  }
  return longest;
}

/// The course of a run in which the first rank's `range` is spoiled before `moment`, once.
TwoSteps spoiled(const Traced& traced, const RecomputePlan& plan, const Life& life,
                 const LiveRange& range, int moment) {
  return trained(traced, plan, [&](int rank) {
    auto spoiler = std::make_unique<Spoiler>(life);
    spoiler->spoil_nothing();
    if (rank == 0) spoiler->spoil(range, moment);
    return spoiler;
  });
}

struct Case {
  Traced traced;
  RecomputePlan plan;
};
void PrintTo(const Case& of, std::ostream* out) {
  *out << of.traced.label() << "; " << of.plan.text();
}
class ActivationLife : public ::testing::TestWithParam<Case> {};

// Spoiled behind its writer or before its last reader, every tensor changes what a run gives;
// tables, which stay, before any reader.
TEST_P(ActivationLife, IsNoLongerThanItMustBe) {
  const auto& [traced, plan] = GetParam();
  const Life life = foretold(traced, plan);
  const TwoSteps expected = spoiled(traced, plan, life, {}, -1);
  for (const auto& [name, range] : longest_of(life)) {
    if (range.first == range.last) continue;
    const bool stays = range.first < 0;
    for (const int moment : {range.first + 1, stays ? 0 : range.last}) {
      EXPECT_FALSE(spoiled(traced, plan, life, range, moment) == expected)
          << name << " before " << life.moments[static_cast<std::size_t>(moment)].work;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ActivationLife,
    ::testing::Values(Case{Traced{}, with_outputs(mixed_plan())},
                      Case{Traced{.compute = DType::bf16}, {}},
                      Case{Traced{.model = llama_of_blocks(tiny_qwen3())}, mixed_plan()},
                      Case{Traced{.model = as_gemma3(llama_of_blocks(tiny_llama()), 4)}, {}}),
    [](const auto& tested) { return fmt::format("Model{}", tested.index); });

// What a collective reads must be whole when it is submitted, what it writes when it is used.
TEST(ActivationExchanges, AreInTheLifeOfWhatTheyReadAndWrite) {
  const Traced traced{.model = llama_of_blocks(tiny_qwen3()), .ranks = 2, .own_rows = true};
  const Life life = foretold(traced, {});
  const TwoSteps expected = spoiled(traced, {}, life, {}, -1);
  const std::map<std::string_view, LiveRange> longest = longest_of(life);
  for (const std::string_view name : {"partial", "partial_embedding", "norm_gradients"}) {
    const LiveRange& range = longest.at(name);
    EXPECT_FALSE(spoiled(traced, {}, life, range, range.first + 1) == expected) << name;
  }
  for (const std::string_view name : {"gathered_normed", "gathered_dx", "softmax"}) {
    const LiveRange& range = longest.at(name);
    EXPECT_FALSE(spoiled(traced, {}, life, range, range.last) == expected) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ActivationLives,
    ::testing::Values(
        Traced{}, Traced{.compute = DType::bf16, .accumulation = 2},
        Traced{.model = llama_of_blocks(tiny_llama())},
        Traced{.model = llama_of_blocks(tiny_qwen2()), .ranks = 2},
        Traced{.model = llama_of_blocks(tiny_qwen3()), .ranks = 2, .own_rows = true},
        Traced{.model = as_gemma3(llama_of_blocks(tiny_llama()), 4)},
        Traced{.model = as_gemma3(llama_of_blocks(tiny_llama()), 4), .ranks = 2, .own_rows = true},
        Traced{.ranks = 2, .own_rows = true}, Traced{.ranks = 2}),
    [](const auto& tested) { return fmt::format("Model{}", tested.index); });

std::int64_t alive_before(const Life& life, int moment, std::string_view name) {
  std::int64_t bytes = 0;
  for (const LiveRange& range : life.ranges) {
    if (range.name == name && range.alive_before(moment)) bytes += range.bytes;
  }
  return bytes;
}

int first_of(const Life& life, Phase phase) {
  const auto found = std::ranges::find(life.moments, phase, &ActivationTrace::Moment::phase);
  return static_cast<int>(found - life.moments.begin());
}

// 9 rows, width 12, 3 heads, fp32, 5 blocks; docs/memory.md's bytes of a row.
TEST(ActivationTrace, FindsWhatForwardKeepsOfEachBlock) {
  const Life life = foretold({}, {});
  const int head = first_of(life, Phase::backward);
  constexpr std::int64_t kRow = 12 * 4;
  const std::map<std::string_view, std::int64_t> expected{
      {"x", kRow},          {"statistics", 8}, {"qkv", 3 * kRow},        {"attended", kRow},
      {"logsumexp", 3 * 4}, {"middle", kRow},  {"middle_statistics", 8}, {"hidden", 4 * kRow}};
  for (const auto& [name, row] : expected)
    EXPECT_EQ(alive_before(life, head, name), kBlocks * 9 * row) << name;
  for (const std::string_view name : {"dx", "logits", "dhidden", "activated", "dqkv"})
    EXPECT_EQ(alive_before(life, head, name), 0) << name;
  EXPECT_EQ(alive_before(life, head, "x of the last norm"), 9 * kRow);
}

TEST(ActivationTrace, FindsThatAGroupOfBlocksKeepsOneInput) {
  const Life life = foretold({}, RecomputePlan::grouped(kBlocks, 2));
  const int head = first_of(life, Phase::backward);
  EXPECT_EQ(alive_before(life, head, "x"), 2 * 9 * 12 * 4);
  for (const std::string_view name : {"qkv", "attended", "hidden"})
    EXPECT_EQ(alive_before(life, head, name), 0) << name;
}

// Only tables of rotary embeddings are there before a micro-batch, and behind it.
TEST(ActivationTrace, FindsNoValueFromOneMicroBatchToTheNextButTables) {
  for (const RecomputePlan& plan : recompute_plans()) {
    std::set<std::string_view> names;
    const Life life = foretold({.model = as_gemma3(llama_of_blocks(tiny_llama()), 4)}, plan);
    for (const LiveRange& range : life.ranges) {
      if (range.first < 0) names.insert(range.name);
      EXPECT_EQ(range.first < 0, range.last == static_cast<int>(life.moments.size()));
    }
    EXPECT_EQ(names,
              (std::set<std::string_view>{"cosines", "sines", "local_cosines", "local_sines"}));
  }
}

TEST(ActivationTrace, NamesEveryByteThatItSees) {
  for (const int ranks : {1, 2}) {
    const Life life = foretold({.ranks = ranks}, with_outputs(mixed_plan()));
    for (const LiveRange& range : life.ranges) {
      EXPECT_NE(range.name, "activations");
      EXPECT_LE(range.offset + range.bytes, life.bytes);
    }
  }
}

}  // namespace
}  // namespace zero::testing
