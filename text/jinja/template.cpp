// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/template.h"

#include "base/printable.h"
#include "text/jinja/evaluator.h"

namespace zero::jinja {
namespace {

constexpr std::size_t kLongest = std::size_t{1} << 20U;  // bytes of a template

Syntax parsed(const std::string& file, std::string_view source) {
  ZERO_CHECK(source.size() <= kLongest, "{}: the chat template has {} bytes; expected at most {}",
             file, source.size(), kLongest);
  try {
    return parse(source);
  } catch (const Error& error) {
    fail("{}: the chat template, {}", file, printable_line(error.what()));
  }
}

}  // namespace

Template::Template(std::string file, std::string_view source)
    : file_(std::move(file)), syntax_(parsed(file_, source)) {}

Text Template::render(Variables variables, const std::tm& now) const {
  std::size_t bytes = 0;
  for (const auto& [name, value] : variables) bytes += weight_of(value);
  try {
    return Evaluator(Budget(bytes), now).run(syntax_, std::move(variables));
  } catch (const Error& error) {
    fail("{}: the chat template, {}", file_, printable_line(error.what()));
  }
}

}  // namespace zero::jinja
