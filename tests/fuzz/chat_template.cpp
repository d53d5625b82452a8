// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <cstddef>

#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const std::string text = replace_invalid_utf8(fuzz::text_of(data, size));
    TokenizerConfig config{.file = "f"};
    config.special.names = {{"bos_token", {"<s>"}}};
    config.chat_template = {.text = text, .file = "f"};
    const std::vector<ChatMessage> messages{{"system", "a\xc3\xa9 b"}, {"user", text.substr(0, 9)}};
    const auto pieces = render_chat(config, messages, {});
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].text.empty()) continue;
      fuzz::expect(!pieces[i].from_template && i > 0 && i + 1 < pieces.size() &&
                       pieces[i - 1].from_template && pieces[i + 1].from_template,
                   "a content without a byte is between two pieces of the template");
    }
  });
}
