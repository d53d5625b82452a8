// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// A model of memory that several ranks write, in which every run of a few ranks is tried: every
/// order of their steps, and every value that the memory model of C++ lets a load give. A rank is
/// plain code over Word, which has the operations of std::atomic.
///
/// Each word keeps all values that were stored, in one order. A rank may load any value that is not
/// older than what it has seen of the word: what it loaded or stored itself, and, where an acquire
/// met a release, what the storing rank had seen. A read-modify-write takes the latest value.
/// Sequentially consistent operations see, in addition, what earlier ones did to the same word. So
/// stores are late for others, and two ranks may see two stores in either order, unless the code
/// asks for more. Not modelled: loads that see stores which their rank makes only later.
///
/// A rank's next step is found by running it again from its start, with what it got before: it must
/// do nothing but compute between its operations.
namespace zero::test::model {

enum class Kind { load, store, add, exchange, wait, wake };

/// Operations of one kind on one group of words (by name), whose memory order is another one.
struct Mutation {
  std::string word;
  Kind kind = Kind::load;
  std::memory_order order = std::memory_order_relaxed;
};

struct Operation {
  Kind kind = Kind::load;
  int word = 0;
  std::uint32_t value = 0;    ///< store: this; add: so much; exchange, wait: where it is this
  std::uint32_t desired = 0;  ///< exchange: becomes this
  std::memory_order order = std::memory_order_relaxed;
};

/// What a rank got from its operations so far; the next one ends its run.
class Replay {
 public:
  explicit Replay(std::span<const std::uint32_t> results) : results_(results) {}
  /// The operation's result, or, where it has none yet, throws the operation.
  std::uint32_t perform(const Operation& operation);

 private:
  std::span<const std::uint32_t> results_;
  std::size_t next_ = 0;
};

/// A word of the model, as std::atomic<std::uint32_t>.
class Word {
 public:
  Word(Replay& replay, int index) : replay_(&replay), index_(index) {}

  std::uint32_t load(std::memory_order order) const {
    return replay_->perform({Kind::load, index_, 0, 0, order});
  }
  void store(std::uint32_t value, std::memory_order order) const {
    replay_->perform({Kind::store, index_, value, 0, order});
  }
  std::uint32_t fetch_add(std::uint32_t value, std::memory_order order) const {
    return replay_->perform({Kind::add, index_, value, 0, order});
  }
  std::uint32_t fetch_sub(std::uint32_t value, std::memory_order order) const {
    return fetch_add(0U - value, order);
  }
  bool compare_exchange_strong(std::uint32_t& expected, std::uint32_t desired,
                               std::memory_order order) const {
    const std::uint32_t found =
        replay_->perform({Kind::exchange, index_, expected, desired, order});
    const bool same = found == expected;
    expected = found;
    return same;
  }
  /// Sleeps until woken, if the word's latest value is `value`.
  void wait(std::uint32_t value) const {
    replay_->perform({Kind::wait, index_, value, 0, std::memory_order_relaxed});
  }
  void wake_all() const { replay_->perform({Kind::wake, index_, 0, 0, {}}); }

 private:
  Replay* replay_;
  int index_;
};

/// A program of a few ranks over words that are 0 at first. A rank throws std::string where it
/// finds what must not be, and Pruned where it has done more rounds than are tried.
struct Program {
  int ranks = 2;
  std::vector<std::string> words;  ///< their names, of which several may be equal
  std::function<void(int rank, Replay&)> body;
  std::optional<Mutation> mutation{};
};
struct Pruned {};

struct Result {
  std::string fault;  ///< what must not be and how it came about; "" if nothing
  std::int64_t states = 0;
};

/// Tries every run. A run in which all that have not ended sleep is a fault.
Result explore(const Program& program);

}  // namespace zero::test::model
