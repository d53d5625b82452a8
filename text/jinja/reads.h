// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>

#include "text/jinja/syntax.h"

namespace zero::jinja {

/// What a template takes from its variables.
struct Reads {
  using Names = std::set<std::string, std::less<>>;
  /// All names whose values it uses, those that it sets itself too.
  Names names{};
  /// Those that it expects from outside: neither functions nor set in every case by itself.
  Names variables{};
  /// It loops over the contents of messages, as lists of parts; other templates take texts alone.
  bool parts = false;
};
Reads reads_of(const Syntax& syntax);

}  // namespace zero::jinja
