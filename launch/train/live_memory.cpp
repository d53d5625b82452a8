// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/live_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

#include "launch/memory/memory_text.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

nlohmann::json classes_json(const BytesByClass& bytes) {
  nlohmann::json json;
  for (const MemoryClass c : all_memory_classes()) {
    json[std::string(name_of(c))] = at(bytes, c);
  }
  return json;
}

/// Tensors of one name and size, of several owners.
struct Alike {
  const LiveMemory::Tensor* first = nullptr;
  std::vector<std::string_view> owners;
  std::int64_t bytes() const { return first->bytes * static_cast<std::int64_t>(owners.size()); }
};

std::vector<Alike> grouped(const std::vector<LiveMemory::Tensor>& tensors) {
  std::vector<Alike> groups;
  for (const LiveMemory::Tensor& tensor : tensors) {
    const auto same = std::ranges::find_if(groups, [&](const Alike& group) {
      return group.first->memory_class == tensor.memory_class && group.first->what == tensor.what &&
             group.first->bytes == tensor.bytes;
    });
    if (same != groups.end()) {
      same->owners.push_back(tensor.owner);
    } else {
      groups.push_back({&tensor, {tensor.owner}});
    }
  }
  std::ranges::stable_sort(groups,
                           [](const Alike& a, const Alike& b) { return a.bytes() > b.bytes(); });
  return groups;
}

/// "h.", 3 of "h.3"; no number: -1.
std::pair<std::string_view, std::int64_t> numbered(std::string_view owner) {
  std::size_t begin = owner.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(owner[begin - 1])) != 0) --begin;
  std::int64_t number = -1;
  std::from_chars(owner.data() + begin, owner.data() + owner.size(), number);
  return {owner.substr(0, begin), number};
}

/// " of h.0 to h.3, last"; empty for the whole rank's. An owner of several is named once.
std::string owners_text(std::vector<std::string_view> owners) {
  std::ranges::sort(owners, {}, numbered);
  const auto repeated = std::ranges::unique(owners);
  owners.erase(repeated.begin(), repeated.end());
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < owners.size(); begin = end) {
    if (owners[begin].empty()) {
      end = begin + 1;
      continue;
    }
    const auto [name, number] = numbered(owners[begin]);
    const auto follows = [&, of = name, from = number](std::size_t i) {
      return from >= 0 &&
             numbered(owners[i]) == std::pair(of, from + static_cast<std::int64_t>(i - begin));
    };
    for (end = begin + 1; end < owners.size() && follows(end);) ++end;
    text += fmt::format("{}{}", text.empty() ? " of " : ", ", owners[begin]);
    if (end > begin + 1) text += fmt::format(" to {}", owners[end - 1]);
  }
  return text;
}

constexpr std::size_t kLargest = 8;  // lines of tensors without labels
constexpr std::size_t kLargestOfArena = 3;

std::string tensors_text(const std::vector<LiveMemory::Tensor>& tensors,
                         LiveMemory::Labels labels) {
  const std::vector<Alike> groups = grouped(tensors);
  const std::size_t shown =
      labels == LiveMemory::Labels::all ? groups.size() : std::min(groups.size(), kLargest);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    const Alike& group = groups[i];
    const std::size_t count = group.owners.size();
    text += fmt::format("  {:>12}  {:<13}  {}{}", size_text(group.bytes()),
                        name_of(group.first->memory_class), group.first->what,
                        owners_text(group.owners));
    if (count > 1) {
      text += fmt::format(" ({} x {})", count, size_text(group.first->bytes));
    }
    text += "\n";
  }
  if (shown == groups.size()) return text;
  std::int64_t rest = 0;
  for (std::size_t i = shown; i < groups.size(); ++i) rest += groups[i].bytes();
  return text + fmt::format("  {:>12}  in {} smaller ones; --labels names them\n", size_text(rest),
                            groups.size() - shown);
}

std::string arena_text(const LiveMemory::Arena& arena, LiveMemory::Labels labels) {
  std::string text = fmt::format(
      "\nactivations, without scratch: reached {}, least possible {}, where these are alive at "
      "once\n",
      size_text(arena.bytes), size_text(arena.least));
  const bool all = labels == LiveMemory::Labels::all;
  const std::size_t shown =
      all ? arena.alive.size() : std::min(arena.alive.size(), kLargestOfArena);
  for (std::size_t i = 0; i < shown; ++i) {
    text += fmt::format("  {:>12}  {}\n", size_text(arena.alive[i].bytes), arena.alive[i].what);
  }
  if (shown == arena.alive.size()) return text;
  return text +
         fmt::format("  and {} smaller ones; --labels names them\n", arena.alive.size() - shown);
}

}  // namespace

nlohmann::json LiveMemory::json() const {
  nlohmann::json phases_json = nlohmann::json::array();
  for (const Moment& phase : phases) {
    phases_json.push_back(
        {{"phase", phase.name}, {"bytes", classes_json(phase.bytes)}, {"sum", phase.sum()}});
  }
  nlohmann::json tensors_json = nlohmann::json::array();
  for (const Tensor& tensor : tensors) {
    tensors_json.push_back({{"class", name_of(tensor.memory_class)},
                            {"of", tensor.owner},
                            {"tensor", tensor.what},
                            {"bytes", tensor.bytes}});
  }
  nlohmann::json alive_json = nlohmann::json::array();
  for (const Tensor& tensor : arena.alive) {
    alive_json.push_back({{"tensor", tensor.what}, {"bytes", tensor.bytes}});
  }
  return {{"rank", rank},
          {"allocated", classes_json(allocated)},
          {"arena", {{"bytes", arena.bytes}, {"least", arena.least}, {"alive", alive_json}}},
          {"phases", phases_json},
          {"peak",
           {{"moment", peak.name},
            {"micro_batch", micro_batch},
            {"bytes", classes_json(peak.bytes)},
            {"sum", peak.sum()},
            {"tensors", tensors_json}}}};
}

std::string LiveMemory::text(Labels labels) const {
  std::vector<ClassColumn> columns;
  for (const Moment& phase : phases) columns.push_back({phase.name, phase.bytes});
  columns.push_back({"peak", peak.bytes});
  columns.push_back({"allocated", allocated});
  return fmt::format(
             "\nlive bytes of rank {}, which later work reads: before a step, behind its forward, "
             "loss, backward, and the step{}\n\nlive at the peak, in micro-batch {}, {}\n",
             rank, class_table("", columns), micro_batch, peak.name) +
         tensors_text(tensors, labels) + arena_text(arena, labels);
}

}  // namespace zero
