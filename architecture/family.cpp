// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/family.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace zero {

// Each is in the source of its name.
extern const Family kGemma3;
extern const Family kGpt2;
extern const Family kLlama;

namespace {

constexpr std::array kFamilies{&kGpt2, &kLlama, &kGemma3};

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family& family_named(std::string_view name) {
  const auto found =
      std::ranges::find(kFamilies, name, [](const Family* each) { return each->name; });
  ZERO_CHECK(found != kFamilies.end(), "model.family: there is no family \"{}\"", name);
  return **found;
}

const Family* family_of_published(std::string_view name) {
  const auto found = std::ranges::find_if(kFamilies, [&](const Family* each) {
    return std::ranges::find(each->published, name) != each->published.end();
  });
  return found == kFamilies.end() ? nullptr : *found;
}

std::vector<std::string> published_names() {
  std::vector<std::string> names;
  for (const Family* family : kFamilies) {
    names.insert(names.end(), family->published.begin(), family->published.end());
  }
  return names;
}

DecoderShape decoder_shape(nlohmann::json section) {
  const Family* const of_name = family_of_published(section.value("name", std::string()));
  const std::string_view usual = of_name == nullptr ? kGpt2.name : of_name->name;
  const std::string family = section.value("family", std::string(usual));
  JsonFields fields(std::move(section), "decoder_shape", "model.");
  DecoderShape shape = family_named(family).from_section(fields);
  shape.validate();
  return shape;
}

NameMap file_names(const DecoderShape& shape) { return shape.family->file_names(shape); }

}  // namespace zero
