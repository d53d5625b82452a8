// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Chat templates in the shapes of public ones, against what transformers writes: record.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/text_file.h"
#include "inference/text/chat_template.h"

namespace zero {
namespace {

using nlohmann::json;

/// As record.py has it: Friday, 26 July 2024, 13:05.
std::tm friday() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 13;
  time.tm_min = 5;
  time.tm_wday = 5;
  time.tm_yday = 207;
  return time;
}

std::vector<ChatMessage> messages_of(const json& conversation) {
  std::vector<ChatMessage> messages;
  for (const json& each : conversation) messages.push_back({each["role"], each["content"]});
  return messages;
}

/// {"text"}, or {"error"}.
json rendered(const TokenizerConfig& config, const json& conversation) {
  try {
    std::string text;
    for (const PromptPiece& piece : render_chat(config, messages_of(conversation), friday())) {
      text += piece.text;
    }
    return {{"text", text}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

TEST(Chats, AreWrittenAsTransformersWritesThem) {
  const char* other = std::getenv("ZERO_CHATS");
  const std::string folder = other != nullptr ? other : ZERO_CHATS;
  const json conversations =
      json::parse(read_text(files::disk(), std::string(ZERO_CHATS) + "/conversations.json"));
  std::ifstream expected(folder + "/expected.jsonl");
  std::int64_t texts = 0;
  for (std::string line; std::getline(expected, line);) {
    const json want = json::parse(line);
    const std::string name = want["template"];
    TokenizerConfig config{.file = name};
    config.special.names = {
        {"bos_token", {"<s>"}}, {"eos_token", {"</s>"}}, {"pad_token", {"<pad>"}}};
    config.chat_template = {.text = read_text(files::disk(), folder + "/templates/" + name),
                            .file = name};
    const std::size_t number = want["conversation"];
    const json found = rendered(config, conversations[number]);
    SCOPED_TRACE(name + ", conversation " + std::to_string(number) + ": " + found.dump());
    if (want.contains("text")) {
      EXPECT_EQ(found.value("text", ""), want["text"]);
      ++texts;
    } else {
      ASSERT_TRUE(found.contains("error"));
      EXPECT_NE(std::string(found["error"]).find(want.value("error", "")), std::string::npos)
          << want["error"];
    }
  }
  EXPECT_GT(texts, other != nullptr ? 0 : 400);
}

}  // namespace
}  // namespace zero
