// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace zero {

/// The world ranks of a group, in its order, of which copies share one list: each rank of a large
/// job names a thousand others for each of its groups, and a hub copies the states of all ranks.
class RankList {
 public:
  using value_type = int;
  using const_iterator = std::vector<int>::const_iterator;

  RankList() = default;
  RankList(std::vector<int> ranks)  // NOLINT(google-explicit-constructor): it is such a list
      : list_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}
  RankList(std::initializer_list<int> ranks) : RankList(std::vector<int>(ranks)) {}

  const std::vector<int>& all() const {
    static const std::vector<int> none;
    return list_ ? *list_ : none;
  }
  const_iterator begin() const { return all().begin(); }
  const_iterator end() const { return all().end(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  void clear() { list_.reset(); }

  // As of the lists; one that is shared is not looked at.
  bool operator==(const RankList& other) const {
    return list_ == other.list_ || all() == other.all();
  }
  std::strong_ordering operator<=>(const RankList& other) const {
    return list_ == other.list_ ? std::strong_ordering::equal : all() <=> other.all();
  }

 private:
  std::shared_ptr<const std::vector<int>> list_{};
};

}  // namespace zero
