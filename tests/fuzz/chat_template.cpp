// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/chat_template.h"

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
    for (const PromptPiece& piece : render_chat(config, messages, {})) {
      fuzz::expect(!piece.text.empty(), "no piece is empty");
    }
  });
}
