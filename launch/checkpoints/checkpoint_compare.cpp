// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/message_text.h"
#include "launch/checkpoints/checkpoint_tool.h"
#include "weights/checkpoint_reader.h"

namespace zero::checkpoint_tool {
namespace {

/// The elements of one tensor that differ, in any bit.
struct Difference {
  std::int64_t count = 0;
  std::int64_t first = 0;
  float values[2] = {};  ///< of the first
  double largest = 0;    ///< infinite if a NaN is on one side
  std::int64_t largest_at = 0;

  void add(std::int64_t element, float one, float other) {
    if (std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other)) return;
    if (count++ == 0) {
      first = element;
      values[0] = one;
      values[1] = other;
    }
    double by = std::abs(static_cast<double>(one) - static_cast<double>(other));
    if (std::isnan(by)) by = std::numeric_limits<double>::infinity();
    if (by <= largest) return;
    largest = by;
    largest_at = element;
  }
};

/// Two checkpoints, read side by side.
class Pair {
 public:
  Pair(files::FileSystem& files, const std::string& path, const std::string& other)
      : one_(files, find_checkpoint(files, path)), other_(files, find_checkpoint(files, other)) {}

  Answer compare() {
    if (one_.index().step != other_.index().step) {
      say("step: {} and {}", one_.index().step, other_.index().step);
    }
    compare_values();
    for (const CheckpointIndex::Tensor& tensor : one_.index().tensors) {
      const CheckpointIndex::Tensor* const twin = other_.find(tensor.name, tensor.kind);
      if (twin == nullptr) {
        say("{} \"{}\": only in {}", name_of(tensor.kind), tensor.name, one_.folder());
      } else if (twin->shape != tensor.shape) {
        say("{} \"{}\": shapes {} and {}", name_of(tensor.kind), tensor.name,
            shape_text(tensor.shape), shape_text(twin->shape));
      } else {
        say_difference(tensor, difference(tensor, *twin));
      }
    }
    for (const CheckpointIndex::Tensor& tensor : other_.index().tensors) {
      if (one_.find(tensor.name, tensor.kind) != nullptr) continue;
      say("{} \"{}\": only in {}", name_of(tensor.kind), tensor.name, other_.folder());
    }
    if (answer_.verdict == Answer::Verdict::yes) {
      answer_.text =
          fmt::format("equal: all {} tensors and all values\n", one_.index().tensors.size());
    }
    return answer_;
  }

 private:
  template <typename... Parts>
  void say(fmt::format_string<Parts...> format, Parts&&... parts) {
    answer_.verdict = Answer::Verdict::no;
    answer_.text += printable_text(fmt::format(format, std::forward<Parts>(parts)...)) + "\n";
  }

  void compare_values() {
    const nlohmann::ordered_json mine = one_.index().extra.flatten();
    const nlohmann::ordered_json others = other_.index().extra.flatten();
    for (const auto& [key, value] : mine.items()) {
      const bool there = others.contains(key);
      if (there && others.at(key) == value) continue;
      say("value {}: {} and {}", key, value.dump(), there ? others.at(key).dump() : "none");
    }
    for (const auto& [key, value] : others.items()) {
      if (!mine.contains(key)) say("value {}: none and {}", key, value.dump());
    }
  }

  Difference difference(const CheckpointIndex::Tensor& tensor,
                        const CheckpointIndex::Tensor& twin) {
    Difference difference;
    std::vector<float> others;
    for_each_chunk(one_, tensor, [&](std::int64_t begin, std::span<const float> values) {
      others.resize(values.size());
      other_.read(twin, begin, others);
      for (std::size_t i = 0; i < values.size(); ++i) {
        difference.add(begin + static_cast<std::int64_t>(i), values[i], others[i]);
      }
    });
    return difference;
  }

  void say_difference(const CheckpointIndex::Tensor& tensor, const Difference& difference) {
    if (difference.count == 0) return;
    if (!found_) {
      say("first difference: {} \"{}\", element {}: {} and {}", name_of(tensor.kind), tensor.name,
          difference.first, difference.values[0], difference.values[1]);
      found_ = true;
    }
    say("{} \"{}\": {} of {} elements differ, by at most {:.3g} (element {})", name_of(tensor.kind),
        tensor.name, difference.count, tensor.count(), difference.largest, difference.largest_at);
  }

  CheckpointReader one_;
  CheckpointReader other_;
  Answer answer_;
  bool found_ = false;
};

}  // namespace

Answer compare(files::FileSystem& files, const std::string& path, const std::string& other) {
  return Pair(files, path, other).compare();
}

}  // namespace zero::checkpoint_tool
