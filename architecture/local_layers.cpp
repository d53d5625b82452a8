// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/local_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/whole_number.h"

namespace zero {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

/// Layers [first, last].
struct Layers {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

std::optional<std::int64_t> number_of(std::string_view text) {
  return whole_number(text, 0, std::numeric_limits<std::int64_t>::max());
}

/// "3", or "3-5".
std::optional<Layers> layers_of(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::optional<std::int64_t> first = number_of(text.substr(0, dash));
  const std::optional<std::int64_t> last =
      dash == std::string_view::npos ? first : number_of(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return Layers{*first, *last};
}

std::vector<bool> parsed(JsonFields& section, std::string_view text, std::int64_t layers) {
  constexpr const char* kKey = "local_layers";
  std::vector<bool> local(static_cast<std::size_t>(layers), false);
  std::int64_t next = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::optional<Layers> some = layers_of(text.substr(at, end - at));
    ZERO_CHECK(some && some->first >= next && some->last < layers,
               "{}: found \"{}\", expected ascending numbers of layers from 0 to {}, as in "
               "\"0-4,6\"",
               section.place(kKey), text, layers - 1);
    std::fill(local.begin() + some->first, local.begin() + some->last + 1, true);
    next = some->last + 1;
    at = end + 1;
  }
  return local;
}

}  // namespace

void set_window(DecoderShape& shape, std::int64_t window, std::vector<bool> local_layers) {
  const auto count = std::ranges::count(local_layers, true);
  const bool all = count == std::ssize(local_layers);
  shape.window = all || count > 0 ? window : 0;
  shape.local_layers = shape.window == 0 || all ? std::vector<bool>() : std::move(local_layers);
}

std::string local_layers_text(const DecoderShape& shape) {
  std::string text;
  const std::vector<bool>& local = shape.local_layers;
  for (auto at = std::ranges::find(local, true); at != local.end();) {
    const auto end = std::find(at, local.end(), false);
    text += fmt::format("{}{}", text.empty() ? "" : ",", at - local.begin());
    if (end - at > 1) text += fmt::format("-{}", end - local.begin() - 1);
    at = std::find(end, local.end(), true);
  }
  return text;
}

void window_from_section(JsonFields& section, DecoderShape& shape) {
  const std::int64_t window = section.integer("window", 0);
  const std::string text = section.text("local_layers", "");
  ZERO_CHECK(window != 0 || text.empty(), "{} is given without model.window; give both or neither",
             section.place("local_layers"));
  const bool some = !text.empty() && shape.layers >= 1 && shape.layers <= kLargestSize;
  set_window(shape, window, some ? parsed(section, text, shape.layers) : std::vector<bool>());
}

void window_to_section(const DecoderShape& shape, nlohmann::json& section) {
  if (shape.window == 0) return;
  section["window"] = shape.window;
  if (!shape.local_layers.empty()) section["local_layers"] = local_layers_text(shape);
}

std::vector<bool> layer_types_from(JsonFields& fields, std::int64_t layers) {
  constexpr const char* kField = "layer_types";
  std::vector<bool> local;
  for (const nlohmann::json& type : fields.raw(kField)) {
    ZERO_CHECK(type == kFull || type == kSliding, "{}: found {}, expected \"{}\" or \"{}\"",
               fields.place(kField), type.dump(), kFull, kSliding);
    local.push_back(type == kSliding);
  }
  ZERO_CHECK(local.empty() || std::ssize(local) == layers,
             "{}: found the types of {} layers, expected those of all {}", fields.place(kField),
             local.size(), layers);
  return local;
}

nlohmann::json layer_types_to(const DecoderShape& shape) {
  nlohmann::json types = nlohmann::json::array();
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    types.push_back(shape.window_of(i) > 0 ? kSliding : kFull);
  }
  return types;
}

}  // namespace zero
