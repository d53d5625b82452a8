// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/json_tree.h"

#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zero {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

/// Appends a field to an object that has none of that name.
json& append_field(json::object_t& object, const std::string& key) {
  return object.emplace(key, nullptr).first->second;
}
ordered_json& append_field(ordered_json::object_t& object, const std::string& key) {
  return object.emplace_back(key, nullptr).second;
}
json& field_at(json::object_t& object, const std::string& key, std::size_t /*index*/) {
  return object.find(key)->second;
}
ordered_json& field_at(ordered_json::object_t& object, const std::string& /*key*/,
                       std::size_t index) {
  return (object.begin() + static_cast<std::ptrdiff_t>(index))->second;
}

/// Builds a tree from the events of the library's parser. Of a key that is given twice, the last
/// value counts.
template <typename Tree>
class Builder final : public nlohmann::json_sax<Tree> {
 public:
  using Base = nlohmann::json_sax<Tree>;
  using Text = typename Base::string_t;
  using Outcome = ReadJson::Outcome;

  Tree take() { return std::move(root_); }
  Outcome outcome() const { return outcome_; }
  std::size_t byte() const { return byte_; }
  std::string what() const { return what_; }

  bool null() override { return value(nullptr); }
  bool boolean(bool of) override { return value(of); }
  bool number_integer(typename Base::number_integer_t of) override { return value(of); }
  bool number_unsigned(typename Base::number_unsigned_t of) override { return value(of); }
  bool number_float(typename Base::number_float_t of, const Text&) override { return value(of); }
  bool string(Text& of) override { return value(std::move(of)); }
  bool binary(typename Base::binary_t& of) override { return value(std::move(of)); }
  bool start_object(std::size_t) override { return open(Tree::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Tree::array()); }
  bool end_array() override { return close(); }

  bool key(Text& of) override {
    Open& top = open_.back();
    auto& object = top.tree->template get_ref<typename Tree::object_t&>();
    const auto [known, is_new] = top.keys.try_emplace(of, object.size());
    next_ = is_new ? &append_field(object, of) : &field_at(object, of, known->second);
    if (!is_new && outcome_ == Outcome::good) {
      outcome_ = Outcome::key_twice;
      what_ = of;
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const bool number = dynamic_cast<const nlohmann::detail::out_of_range*>(&error) != nullptr;
    outcome_ = number ? Outcome::bad_number : Outcome::not_json;
    byte_ = position;
    what_ = error.what();
    return false;
  }

 private:
  /// An object or list that has not ended.
  struct Open {
    Tree* tree;
    std::unordered_map<std::string, std::size_t> keys;  // of an object: indices of its fields
  };

  /// Inserts a value as the field whose key was read, or as the next of a list.
  Tree& put(Tree&& tree) {
    if (open_.empty()) return root_ = std::move(tree);
    if (next_ != nullptr) return *std::exchange(next_, nullptr) = std::move(tree);
    auto& list = open_.back().tree->template get_ref<typename Tree::array_t&>();
    return list.emplace_back(std::move(tree));
  }

  bool value(Tree&& tree) {
    put(std::move(tree));
    return true;
  }

  bool open(Tree&& tree) {
    if (open_.size() == static_cast<std::size_t>(kDeepestTree)) {
      outcome_ = Outcome::deep;
      return false;
    }
    open_.push_back({&put(std::move(tree)), {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Tree root_;
  std::vector<Open> open_;
  Tree* next_ = nullptr;  // the field whose key was read
  Outcome outcome_ = Outcome::good;
  std::size_t byte_ = 0;
  std::string what_;
};

template <typename Tree>
std::optional<Tree> parse(std::string_view text) {
  Builder<Tree> builder;
  const bool whole = Tree::sax_parse(text, &builder);
  return whole ? std::optional<Tree>(builder.take()) : std::nullopt;
}

}  // namespace

std::optional<json> parse_json_tree(std::string_view text) { return parse<json>(text); }

std::optional<ordered_json> parse_ordered_tree(std::string_view text) {
  return parse<ordered_json>(text);
}

ReadJson read_json(std::string_view text) {
  Builder<json> builder;
  json::sax_parse(text, &builder);
  ReadJson read{.outcome = builder.outcome(), .byte = builder.byte(), .what = builder.what()};
  read.value = builder.take();
  return read;
}

}  // namespace zero
