// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Chat templates in the shapes of public ones, against what transformers writes: record.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/chat_template.h"
#include "weights/text_file.h"

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

/// A token "<...>" that pieces of the template write together, across contents without a byte;
/// empty if there is none.
std::string cut_token(const std::vector<PromptPiece>& pieces) {
  for (std::size_t i = 2; i < pieces.size(); ++i) {
    const bool empty = pieces[i - 1].text.empty() && !pieces[i - 1].from_template;
    if (!empty || !pieces[i - 2].from_template || !pieces[i].from_template) continue;
    const std::string& before = pieces[i - 2].text;
    const std::string& behind = pieces[i].text;
    const std::size_t begin = before.find_last_of("<> \n");
    const std::size_t end = behind.find_first_of("<> \n");
    if (begin == std::string::npos || end == std::string::npos) continue;
    if (before[begin] == '<' && behind[end] == '>') {
      return before.substr(begin) + behind.substr(0, end + 1);
    }
  }
  return "";
}

/// {"text"}, or {"error"}.
json rendered(const TokenizerConfig& config, const json& conversation) {
  try {
    std::string text;
    const auto pieces = render_chat(config, messages_of(conversation), friday());
    EXPECT_EQ(cut_token(pieces), "");
    for (const PromptPiece& piece : pieces) text += piece.text;
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
