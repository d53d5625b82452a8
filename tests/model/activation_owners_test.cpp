// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/unit_listener.h"
#include "tests/model/recompute_plans.h"

// That what a tensor's place held is there when it is read: nothing else has been written over it.
namespace zero::testing {
namespace {

/// Knows which tensor has written what lies where, and that work reads tensors that the model has
/// asked for in the same use of a unit.
class Owners final : public UnitListener {
 public:
  explicit Owners(std::string label) : label_(std::move(label)) {}
  void start(const View& memory) {
    memory_ = memory;
    owners_.assign(static_cast<std::size_t>(memory.bytes() / kCell), nobody());
  }
  std::int64_t reads() const { return reads_; }

  void begin(const OpCost& cost) override { work_ = cost.name; }
  void end() noexcept override {}
  void unit(std::string_view name, Phase /*phase*/) override {
    ++use_;
    unit_ = name;
  }
  void tensor(std::string_view name, std::int64_t layer, const View& values) override {
    if (memory_.empty()) return;
    const std::string_view whole = name == "head_gradients" ? "norm_gradients" : name;
    std::erase_if(asked_,
                  [&](const Asked& each) { return each.name == whole && each.layer == layer; });
    asked_.push_back({whole, layer, begin_of(values), begin_of(values) + values.bytes(), use_});
  }
  void touches(const View& values, Access access) override {
    if (!in_memory(values)) return;
    if (access != Access::write) read(values);
    if (access != Access::read) write(values);
  }
  void copies(const View& from, const View& to) override { moves(from, to); }
  void moves(const View& from, const View& to) override {
    if (in_memory(from)) read(from);
    if (in_memory(to)) write(to);
  }

 private:
  static constexpr std::int64_t kCell = 64;  // no two tensors share one
  struct Asked {
    std::string_view name;
    std::int64_t layer = -1;
    std::int64_t begin = 0, end = 0;
    int use = 0;
  };
  static Asked nobody() { return {"nobody", -1, 0, 0, -1}; }

  std::int64_t begin_of(const View& view) const {
    return static_cast<const std::byte*>(view.data()) -
           static_cast<const std::byte*>(memory_.data());
  }
  bool in_memory(const View& view) const {
    if (view.empty() || memory_.empty()) return false;
    return begin_of(view) >= 0 && begin_of(view) < memory_.bytes();
  }
  /// Calls body(owner) for each cell.
  template <typename Body>
  void for_cells(const View& values, const Body& body) {
    const std::int64_t begin = begin_of(values);
    for (std::int64_t cell = begin / kCell; cell * kCell < begin + values.bytes(); ++cell) {
      body(owners_[static_cast<std::size_t>(cell)]);
    }
  }
  bool is_asked(const Asked& owner) const {
    return std::ranges::any_of(asked_, [&](const Asked& each) {
      return each.use == use_ && each.name == owner.name && each.layer == owner.layer;
    });
  }
  /// Tables are there before the first micro-batch.
  const Asked& owner_of(const Asked& known, std::int64_t begin) const {
    if (known.use >= 0) return known;
    const auto table = std::ranges::find_if(asked_, [&](const Asked& each) {
      return each.name.ends_with("sines") && each.begin <= begin && begin < each.end;
    });
    return table == asked_.end() ? known : *table;
  }
  void read(const View& values) {
    ++reads_;
    const Asked* checked = nullptr;
    for_cells(values, [&](Asked& owner) {
      if (checked != nullptr && owner.name == checked->name && owner.layer == checked->layer)
        return;
      owner = owner_of(owner, begin_of(values));
      checked = &owner;
      EXPECT_TRUE(is_asked(owner)) << label_ << ": " << work_ << " in " << unit_ << " reads what "
                                   << owner.name << " of block " << owner.layer << " wrote";
    });
  }
  void write(const View& values) {
    const std::int64_t begin = begin_of(values);
    const auto newest =
        std::ranges::find_if(asked_.rbegin(), asked_.rend(), [&](const Asked& each) {
          return each.begin <= begin && begin + values.bytes() <= each.end;
        });
    ASSERT_NE(newest, asked_.rend());
    for_cells(values, [&](Asked& owner) { owner = *newest; });
  }

  std::string label_;
  View memory_;
  std::vector<Asked> owners_;
  std::vector<Asked> asked_;  // newest last
  int use_ = 0;
  std::int64_t reads_ = 0;
  std::string unit_, work_;
};

struct Cut {
  int ranks = 1;
  bool own_rows = false;
  int chunks = 1;
};

/// On a rank without memory: the calls are those of a run.
void expect_owned(const DecoderShape& model, const Cut& cut, const RecomputePlan& plan) {
  const auto device = planning::open(1);
  const auto nobody = planning::communicator(0, cut.ranks, BackendKind::local, device.get());
  Mesh mesh(*nobody, {1, 1, cut.ranks});
  Engine engine(mesh, *device, {});
  Owners owners(fmt::format("{}, {} ranks, {} chunks, {}", model.family->name, cut.ranks,
                            cut.chunks, plan.text()));
  Decoder decoder(engine, model, kRowOfTokens, &owners,
                  {.sequence_parallel = cut.own_rows, .chunks = cut.chunks}, plan);
  engine.seal({.order = decoder.order(), .accumulation_steps = 2});
  decoder.allocate();
  owners.start(decoder.activations());
  const Batch batch = Batch::random(9, 23, 1);
  double loss = 0;
  const View inputs = View::of(std::span(batch.inputs));
  const View targets = View::of(std::span(batch.targets));
  for (int i = 0; i < 2; ++i) decoder.train(inputs, targets, 1, View::of(std::span(&loss, 1)));
  EXPECT_GT(owners.reads(), 0);
}

TEST(ActivationOwners, AreWhatIsReadInEveryUseOfAUnit) {
  std::vector<RecomputePlan> plans = recompute_plans();
  plans.emplace_back();
  plans.push_back(mixed_plan());
  for (const DecoderShape& model :
       {gpt2_of_blocks(), llama_of_blocks(tiny_llama()), llama_of_blocks(tiny_qwen3()),
        as_gemma3(llama_of_blocks(tiny_llama()), 4)}) {
    for (const RecomputePlan& plan : plans) {
      for (const Cut& cut :
           {Cut{}, Cut{2, false, 1}, Cut{2, false, 2}, Cut{2, true, 1}, Cut{2, true, 2}}) {
        expect_owned(model, cut, plan);
      }
    }
  }
}

}  // namespace
}  // namespace zero::testing
