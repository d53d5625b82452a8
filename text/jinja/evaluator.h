// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace zero::jinja {

/// What a template may use, so that no template runs for ever or takes all memory: a few seconds of
/// work, and memory by the size of its messages.
class Budget {
 public:
  explicit Budget(std::size_t bytes_given) : bytes_left_(kMostBytes + 256 * bytes_given) {}

  /// One step, and the reading of so many bytes.
  void work(std::size_t bytes = 0) {
    const std::size_t steps = 1 + bytes / 64;
    ZERO_CHECK(steps <= steps_left_, "the template works for more than {} steps", kSteps);
    steps_left_ -= steps;
  }
  /// Bytes of values that are made, freed or not; call before they are.
  void make(std::size_t bytes) {
    work(bytes);
    ZERO_CHECK(bytes <= bytes_left_, "the template makes texts and lists of too many bytes");
    bytes_left_ -= bytes;
  }
  /// A search for `what` bytes in `in`.
  void search(std::size_t in, std::size_t what) { work(in * (1 + what / 64)); }

  /// How deep expressions, statements and macros are within each other.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      ZERO_CHECK(budget_.depth_ < kDeepest,
                 "the template's macros and expressions are nested deeper than {}", kDeepest);
      ++budget_.depth_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --budget_.depth_; }

   private:
    Budget& budget_;
  };

  static constexpr std::size_t kSteps = 5'000'000;
  static constexpr int kDeepest = 400;

 private:
  std::size_t steps_left_ = kSteps;
  std::size_t bytes_left_;
  int depth_ = 0;
};

/// Names and their values; those of the scopes around are seen through it.
struct Scope {
  std::shared_ptr<Scope> around{};
  std::vector<std::pair<std::string, Value>> names{};
};
/// A loop that runs, or ran.
struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
  std::int64_t depth = 1;
  Origin origin = Origin::from_template;  ///< of its count
  std::vector<Value> changed{};
};
struct Macro {
  const Statement* statement;
  std::shared_ptr<Scope> scope;  ///< in which it was defined
};

/// Runs one template once, within a budget. What it calls are the functions below, of values alone:
/// a template reaches nothing of the process but its variables and `now`.
class Evaluator {
 public:
  /// `now` is what strftime_now writes.
  Evaluator(Budget budget, const std::tm& now);

  /// What the template writes. `syntax` must outlive the evaluator. Throws zero::Error
  /// "line N: ...".
  Text run(const Syntax& syntax, std::vector<std::pair<std::string, Value>> variables);

  // For filters, tests and functions.
  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  Value new_namespace(std::vector<std::pair<std::string, Value>> items);
  /// The values that a loop over `value` takes. Throws zero::Error if there are none to take.
  std::vector<Value> items_of(const Value& value);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);

 private:
  enum class Flow : std::uint8_t { on, next, leave };
  Flow execute(const Statements& statements);
  Flow execute(const Statement& statement);
  Flow execute_condition(const Statement& statement);
  Flow execute_loop(const Statement& statement);
  Flow execute_scope(const Statement& statement);
  /// The items of a loop that begins, and the origin of their count.
  void take_items(const Statement& statement, Loop& loop);
  Text captured(const Statements& statements);
  void assign(const Expression& target, const Value& value);
  void assign_names(const Expressions& targets, const Value& value);
  void set(const std::string& name, Value value);
  /// Makes a scope within the present one while it lives.
  class Inner;
  /// While it lives, statements run that a value of an origin chose: what they assign has that
  /// origin too, and so has their place in the output if they write nothing.
  class Chosen;

  Value evaluate(const Expression& expression);
  Value evaluate_value(const Expression& expression);
  Value evaluate_logic(const Expression& expression);
  Value evaluate_list(const Expression& expression);
  Value evaluate_map(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_comparison(const Expression& expression);
  Value evaluate_joined(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  Value name(const std::string& name);
  Value item_at(const Value& of, const Value& key);
  Arguments arguments(const Expression& expression);
  Value call(const Value& function, const Arguments& arguments);
  Value call_macro(const Macro& macro, const Arguments& arguments);

  Budget budget_;
  const std::tm now_;
  int line_ = 1;  // of what is evaluated
  Text out_;
  Value filtered_;  // the text of a filter block
  std::int64_t loops_ = 0;
  Origin chosen_by_ = Origin::from_template;  // that of what chose the statements that run
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::deque<Namespace> namespaces_;
  std::deque<Loop> loop_states_;
  std::deque<Macro> macros_;
};

/// The result of a filter, function or method with its origin: content if it was counted or chosen
/// among contents, or as contents say. The bytes of a text that was made of a text have their
/// origins already; it gets borders if arguments that are content say where it is cut.
Value made_of(const Value& result, const Value& input, const Arguments& arguments);
/// `text`, between two borders if content (`origin`) says where it is cut.
Value cut_by(Origin origin, const Value& text);
/// Throws zero::Error if no filter, test, function or method has the name, or arguments do not fit.
Value apply_filter(Evaluator& evaluator, const std::string& name, const Value& input,
                   const Arguments& arguments);
bool apply_test(Evaluator& evaluator, const std::string& name, const Value& input,
                const Arguments& arguments);
Value call_function(Evaluator& evaluator, std::string_view name, const Arguments& arguments);
Value call_method(Evaluator& evaluator, const Method& method, const Arguments& arguments);
/// The names of all that is known and may give values; those of methods, of every type.
std::vector<std::string_view> filter_names();
std::vector<std::string_view> function_names();
std::vector<std::string_view> method_names();
/// The function of that name that templates find; undefined if there is none.
Value global_function(const std::string& name);
/// Whether Python's values of that type have such a method.
bool has_method(const Value& value, std::string_view name);
Value operate(Evaluator& evaluator, const std::string& sign, const Value& a, const Value& b);
bool contains(Evaluator& evaluator, const Value& in, const Value& what);
/// Characters of a text, items of a list or map; 0 of what is undefined.
std::int64_t length_of(const Value& value);

/// The parameters of a filter or function, given by their places or names.
class Given {
 public:
  /// Throws zero::Error if `arguments` has others, or fewer than `needed`.
  Given(std::string_view function, const Arguments& arguments,
        std::span<const std::string_view> names, std::size_t needed = 0);
  Given(std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> names, std::size_t needed = 0)
      : Given(function, arguments, std::span(names.begin(), names.size()), needed) {}

  /// Null if it was not given.
  const Value* value(std::size_t place) const { return values_[place]; }
  bool truth(std::size_t place) const;
  std::int64_t integer(std::size_t place, std::int64_t otherwise) const;
  /// Of the template if it was not given.
  Origin origin(std::size_t place) const;
  /// As str() has it.
  Text text(std::size_t place, std::string_view otherwise = "") const;
  /// Throws zero::Error unless it is a text.
  const Text& needed_text(std::size_t place) const;

 private:
  std::string function_;
  std::vector<const Value*> values_;
};

}  // namespace zero::jinja
