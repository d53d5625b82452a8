// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/barrier_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <unordered_set>

#include "base/error.h"

namespace zero::test::model {
namespace {

constexpr std::size_t kMostWords = 10;
constexpr std::size_t kMostRanks = 3;
constexpr std::size_t kMostStores = 24;   // to one word
constexpr std::size_t kMostResults = 72;  // of one rank's operations

// For each word, the oldest of its values that may still be loaded.
using View = std::array<std::uint8_t, kMostWords>;

void join(View& view, const View& other) {
  for (std::size_t i = 0; i < view.size(); ++i) view[i] = std::max(view[i], other[i]);
}

struct Message {
  std::uint32_t value = 0;
  View view{};  // what who acquires it has seen
};

// A vector without memory of its own: states are copied all the time.
template <typename T, std::size_t kMost>
class Few {
 public:
  void push_back(const T& value) {
    ZERO_CHECK(size_ < kMost, "the model has room for {} of these", kMost);
    values_[size_++] = value;
  }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t at) const { return values_[at]; }
  const T& back() const { return values_[size_ - 1]; }
  std::span<const T> all() const { return {values_.data(), size_}; }

 private:
  std::array<T, kMost> values_{};
  std::size_t size_ = 0;
};

enum class Condition : std::uint8_t { running, asleep, ended };

struct Rank {
  Condition condition = Condition::running;
  View view{};
  Few<std::uint32_t, kMostResults> results;
  Operation next;
};

// How a state came about, for people.
struct Step {
  std::shared_ptr<const Step> before;
  int rank = 0;
  Operation operation;
  std::uint32_t result = 0;
};

struct State {
  std::array<Few<Message, kMostStores>, kMostWords> words;
  View in_order{};  // what sequentially consistent operations have seen
  std::array<Rank, kMostRanks> ranks;
  std::shared_ptr<const Step> last;
};

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

// Two different mixtures of 64 bits make two states with one key too rare to think of.
struct Key {
  std::uint64_t one = 0x9e3779b97f4a7c15ULL;
  std::uint64_t other = 0xc2b2ae3d27d4eb4fULL;

  void add(std::uint64_t word) {
    one = (one ^ word) * 0xff51afd7ed558ccdULL;
    one ^= one >> 32U;
    other = (other + word) * 0xc4ceb9fe1a85ec53ULL;
    other ^= other >> 29U;
  }
  bool operator==(const Key&) const = default;
};
struct HashOfKey {
  std::size_t operator()(const Key& key) const { return key.one; }
};

// Equal for states from which the same can follow: what no rank can load any more is left out, and
// what ranks got that have ended.
Key key_of(const State& state) {
  View oldest;
  oldest.fill(UINT8_MAX);
  for (const Rank& rank : state.ranks) {
    if (rank.condition == Condition::ended) continue;
    for (std::size_t i = 0; i < kMostWords; ++i) oldest[i] = std::min(oldest[i], rank.view[i]);
  }
  Key key;
  const auto add = [&](const View& view) {
    std::uint64_t packed = 0;
    for (std::size_t i = 0; i < kMostWords; ++i) {
      packed = packed * 61 + std::max(view[i], oldest[i]) + 1U;
    }
    key.add(packed);
  };
  for (std::size_t i = 0; i < kMostWords; ++i) {
    const auto& word = state.words[i];
    key.add(word.size());
    const std::size_t first = std::min<std::size_t>(oldest[i], word.size() - 1);
    for (const Message& message : word.all().subspan(first)) {
      key.add(message.value);
      add(message.view);
    }
  }
  add(state.in_order);
  for (const Rank& rank : state.ranks) {
    key.add(static_cast<std::uint64_t>(rank.condition));
    if (rank.condition == Condition::ended) continue;
    add(rank.view);
    key.add(rank.results.size());
    for (const std::uint32_t result : rank.results.all()) key.add(result);
  }
  return key;
}

class Explorer {
 public:
  explicit Explorer(const Program& program) : program_(program) {}

  Result run() {
    State first;
    for (auto& word : first.words) word.push_back({});
    for (auto& rank : first.ranks) rank.condition = Condition::ended;
    std::uint32_t all = 0;
    for (int rank = 0; rank < program_.ranks; ++rank) {
      first.ranks[static_cast<std::size_t>(rank)].condition = Condition::running;
      all |= 1U << static_cast<unsigned>(rank);
    }
    push(std::move(first), all);
    while (!open_.empty() && result_.fault.empty()) {
      const State state = std::move(open_.back());
      open_.pop_back();
      expand(state);
    }
    return result_;
  }

 private:
  // Runs a rank up to the operation that it does next. Whether this run goes on.
  bool advance(State& state, int index) {
    Rank& rank = state.ranks[static_cast<std::size_t>(index)];
    try {
      Replay replay(rank.results.all());
      program_.body(index, replay);
      rank.condition = Condition::ended;
    } catch (const Operation& operation) {
      rank.next = operation;
      rank.next.order = order_of(operation);
    } catch (const std::string& fault) {
      result_.fault = told(state, fmt::format("rank {}: {}", index, fault));
      return false;
    } catch (const Pruned&) {
      return false;
    }
    return true;
  }

  std::memory_order order_of(const Operation& operation) const {
    const auto& mutation = program_.mutation;
    const bool mutated = mutation && mutation->kind == operation.kind &&
                         mutation->word == program_.words[static_cast<std::size_t>(operation.word)];
    return mutated ? mutation->order : operation.order;
  }

  // A state in which the ranks of `moved`, as bits, have got a result and go on from there.
  void push(State state, std::uint32_t moved) {
    if (!known_.insert(key_of(state)).second) return;
    ++result_.states;
    for (int index = 0; index < program_.ranks; ++index) {
      if ((moved >> static_cast<unsigned>(index) & 1U) != 0 && !advance(state, index)) return;
    }
    open_.push_back(std::move(state));
  }

  void expand(const State& state) {
    bool moves = false;
    bool asleep = false;
    for (int index = 0; index < program_.ranks; ++index) {
      const Rank& rank = state.ranks[static_cast<std::size_t>(index)];
      asleep = asleep || rank.condition == Condition::asleep;
      if (rank.condition != Condition::running) continue;
      moves = true;
      step(state, index);
    }
    if (asleep && !moves) result_.fault = told(state, "all who are left sleep, and nobody wakes");
  }

  void step(const State& state, int index) {
    const Operation& next = state.ranks[static_cast<std::size_t>(index)].next;
    if (next.kind != Kind::load) return apply(state, index, 0);
    const auto at = static_cast<std::size_t>(next.word);
    std::size_t oldest = state.ranks[static_cast<std::size_t>(index)].view[at];
    if (next.order == std::memory_order_seq_cst) {
      oldest = std::max<std::size_t>(oldest, state.in_order[at]);
    }
    for (std::size_t age = oldest; age < state.words[at].size(); ++age) apply(state, index, age);
  }

  // One step of a rank; a load gives the value at `age`.
  void apply(State state, int index, std::size_t age) {
    Rank& rank = state.ranks[static_cast<std::size_t>(index)];
    const Operation next = rank.next;
    auto& word = state.words[static_cast<std::size_t>(next.word)];
    const std::uint32_t latest = word.back().value;
    std::uint32_t result = latest;
    switch (next.kind) {
      case Kind::load:
        result = word[age].value;
        see(state, rank, next, age);
        break;
      case Kind::store:
        write(state, rank, next, next.value, {});
        break;
      case Kind::add:
        see(state, rank, next, word.size() - 1);
        write(state, rank, next, latest + next.value, word.back().view);
        break;
      case Kind::exchange:
        see(state, rank, next, word.size() - 1);
        if (latest == next.value) write(state, rank, next, next.desired, word.back().view);
        break;
      case Kind::wait:
        if (latest == next.value) rank.condition = Condition::asleep;
        break;
      case Kind::wake:
        break;
    }
    state.last = std::make_shared<const Step>(Step{state.last, index, next, result});
    if (rank.condition == Condition::asleep) return push(std::move(state), 0);
    rank.results.push_back(result);
    std::uint32_t moved = 1U << static_cast<unsigned>(index);
    if (next.kind == Kind::wake) moved |= wake(state, next.word);
    push(std::move(state), moved);
  }

  // Gives who was woken, as bits.
  static std::uint32_t wake(State& state, int word) {
    std::uint32_t woken = 0;
    for (std::size_t index = 0; index < kMostRanks; ++index) {
      Rank& rank = state.ranks[index];
      if (rank.condition != Condition::asleep || rank.next.word != word) continue;
      rank.condition = Condition::running;
      rank.results.push_back(0);
      woken |= 1U << index;
    }
    return woken;
  }

  static void see(State& state, Rank& rank, const Operation& next, std::size_t age) {
    const auto at = static_cast<std::size_t>(next.word);
    const auto seen = static_cast<std::uint8_t>(age);
    rank.view[at] = std::max(rank.view[at], seen);
    if (acquires(next.order)) join(rank.view, state.words[at][age].view);
    if (next.order == std::memory_order_seq_cst) {
      state.in_order[at] = std::max(state.in_order[at], seen);
    }
  }

  // `before` is what a read-modify-write passes on of the value that it replaces.
  static void write(State& state, Rank& rank, const Operation& next, std::uint32_t value,
                    View before) {
    const auto at = static_cast<std::size_t>(next.word);
    const auto age = static_cast<std::uint8_t>(state.words[at].size());
    rank.view[at] = age;
    before[at] = age;
    if (releases(next.order)) join(before, rank.view);
    state.words[at].push_back({value, before});
    if (next.order == std::memory_order_seq_cst) state.in_order[at] = age;
  }

  std::string told(const State& state, const std::string& fault) const {
    constexpr std::array kNames{"loads", "stores to", "adds to", "exchanges", "waits for", "wakes"};
    std::vector<std::string> lines;
    for (const Step* step = state.last.get(); step != nullptr; step = step->before.get()) {
      const Operation& done = step->operation;
      lines.push_back(fmt::format("rank {} {} {}: {}", step->rank,
                                  kNames.at(static_cast<std::size_t>(done.kind)),
                                  program_.words[static_cast<std::size_t>(done.word)],
                                  done.kind == Kind::store ? done.value : step->result));
    }
    std::ranges::reverse(lines);
    return fmt::format("{}\n{}", fault, fmt::join(lines, "\n"));
  }

  const Program& program_;
  Result result_;
  std::vector<State> open_;
  std::unordered_set<Key, HashOfKey> known_;
};

}  // namespace

std::uint32_t Replay::perform(const Operation& operation) {
  if (next_ == results_.size()) throw operation;
  return results_[next_++];
}

Result explore(const Program& program) { return Explorer(program).run(); }

}  // namespace zero::test::model
