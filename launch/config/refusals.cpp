// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/refusals.h"

namespace zero {

void Refusals::raise(const std::string& source) const {
  if (messages_.empty()) return;
  if (messages_.size() == 1) throw Error(messages_.front());
  const std::string prefix = source + ": ";
  std::string text = fmt::format("{}: {} refusals:", source, messages_.size());
  for (const std::string& message : messages_) {
    text += "\n  - ";
    text += message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }
  throw Error(text);
}

}  // namespace zero
