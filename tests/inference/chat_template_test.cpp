// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::HasSubstr;
using Messages = std::vector<ChatMessage>;

const Messages kTurns{{"user", " Hi "}, {"assistant", " Yes? "}, {"user", "Why"}};
const Messages kWithSystem{
    {"system", " Be brief "}, {"user", " Hi "}, {"assistant", " Yes? "}, {"user", "Why"}};

std::string render(const std::string& chat_template, const Messages& messages) {
  TokenizerConfig config{.file = "f/tokenizer_config.json"};
  config.bos_token = "<s>";
  config.eos_token = "</s>";
  config.chat_template = chat_template;
  config.chat_template_file = config.file;
  std::string text;
  for (const PromptPiece& piece : render_chat(config, messages, "01 Feb 2003")) text += piece.text;
  return text;
}

const std::string kChatMl =
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const std::string kQwen2 =
    "{% if messages[0]['role'] != 'system' %}{{ \"<|im_start|>system\\nYou help.\\nWell."
    "<|im_end|>\\n\" }}{% endif %}" +
    kChatMl;

TEST(ChatMl, HasTheTemplatesOwnSystemMessage) {
  const std::string turns =
      "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n Yes? <|im_end|>\n"
      "<|im_start|>user\nWhy<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(render(kChatMl, kTurns), turns);
  EXPECT_EQ(render(kQwen2, kTurns), "<|im_start|>system\nYou help.\nWell.<|im_end|>\n" + turns);
  const std::string system = "<|im_start|>system\n Be brief <|im_end|>\n";
  EXPECT_EQ(render(kQwen2, kWithSystem), system + turns);
  EXPECT_EQ(render(kChatMl, kWithSystem), system + turns);
}

TEST(Llama3, BeginsWithTheDateFrom31On) {
  const std::string llama3 =
      "{{ bos_token }}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'+ "
      "m['content'] | trim + '<|eot_id|>' }}";
  const std::string turns =
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nWhy<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n";
  const std::string system = "<|start_header_id|>system<|end_header_id|>\n\n";
  EXPECT_EQ(render(llama3, kTurns), "<s>" + turns);
  EXPECT_EQ(render(llama3, kWithSystem), "<s>" + system + "Be brief<|eot_id|>" + turns);
  const std::string dated =
      llama3 +
      R"({%- set date_string = "26 Jul 2024" %}{{ "Cutting Knowledge Date: December 2023\n" }})";
  const std::string dates =
      system + "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  EXPECT_EQ(render(dated, kTurns), "<s>" + dates + "<|eot_id|>" + turns);
  EXPECT_EQ(render(dated, kWithSystem), "<s>" + dates + "Be brief<|eot_id|>" + turns);
  EXPECT_THAT(render(dated + "strftime_now", kTurns), HasSubstr("\nToday Date: 01 Feb 2003\n"));
}

TEST(Inst, IsLlama2sOrMistrals) {
  const std::string llama2 =
      "'<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' bos_token + '[INST] ' + content.strip() + ' "
      "[/INST]' ' '  + content.strip() + ' ' + eos_token";
  EXPECT_EQ(render(llama2, kTurns), "<s>[INST] Hi [/INST] Yes? </s><s>[INST] Why [/INST]");
  EXPECT_EQ(
      render(llama2, kWithSystem),
      "<s>[INST] <<SYS>>\n Be brief \n<</SYS>>\n\n Hi [/INST] Yes? </s><s>[INST] Why [/INST]");
  EXPECT_EQ(render(llama2, {{"system", "a"}, {"user", " \n"}}),
            "<s>[INST] <<SYS>>\na\n<</SYS>> [/INST]");
  const std::string user = "bos_token '[INST] ' + message['content'] + ' [/INST]'";
  const std::string begin = "<s>[INST]  Hi  [/INST]";
  const std::string end = "[INST] Why [/INST]";
  EXPECT_EQ(render(user + "message['content'] + eos_token", kTurns), begin + " Yes? </s>" + end);
  EXPECT_EQ(render(user + "message[\"content\"] + eos_token + ' '", kTurns),
            begin + " Yes? </s> " + end);
  EXPECT_EQ(render(user + "' ' + message['content'] + eos_token", kTurns),
            begin + "  Yes? </s>" + end);
  EXPECT_EQ(render("'[INST] ' + message['content'] + '[/INST]' message['content'] + eos_token",
                   {{"user", "Hi"}}),
            "<s>[INST] Hi[/INST]");
  EXPECT_THAT(message_of([&] { render(user + "message['content'] + eos_token", kWithSystem); }),
              HasSubstr("messages[0].role: found system, which the chat template in "
                        "f/tokenizer_config.json does not know"));
  EXPECT_THAT(
      message_of([&] {
        render(llama2, {{"user", "a"}, {"user", "b"}});
      }),
      HasSubstr("messages[1].role: found user, expected assistant: the chat template in f/"));
}

/// What a template lets a tokenizer read as special tokens, and what messages brought.
TEST(ChatTemplate, MessagesArePiecesOfTheirOwn) {
  TokenizerConfig config{.file = "f"};
  config.bos_token = "<s>";
  config.eos_token = "</s>";
  const std::string inst = "bos_token '[INST] ' + message['content'] + ' [/INST]'";
  const Messages attack{{"system", "A"}, {"user", "B"}, {"assistant", "C"}, {"user", "D"}};
  const std::string llama3 = "<|start_header_id|>trim";
  for (const std::string& family :
       {kChatMl, kQwen2, llama3, llama3 + "Cutting Knowledge Date strftime_now",
        std::string("[INST]<<SYS>>strip()"), inst + "message['content'] + eos_token"}) {
    config.chat_template = family;
    const bool system = !family.starts_with("bos_token");
    std::string from_messages;
    for (const PromptPiece& piece :
         render_chat(config, std::span(attack).subspan(system ? 0 : 1), "01 Feb 2003")) {
      if (!piece.from_template) from_messages += piece.text;
    }
    EXPECT_EQ(from_messages, system ? "ABCD" : "BCD") << family;
  }
}

TEST(ChatTemplate, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(
      message_of([] { render("", kTurns); }),
      HasSubstr("f/tokenizer_config.json: has no chat_template, so the model was not made"));
  for (const std::string& unknown :
       {std::string("{{ message['content'] }}"), "<think>" + kChatMl, "bos_token" + kChatMl,
        "[INST]" + kChatMl, kChatMl + "|trim", std::string("'[INST]' + eos_token + 'x'"),
        std::string("<|start_header_id|> without an end")}) {
    EXPECT_THAT(message_of([&] { render(unknown, kTurns); }),
                HasSubstr("f/tokenizer_config.json: the chat_template is not a known one: ChatML "
                          "(Qwen2), Llama 3, Llama 2 or Mistral's [INST]"))
        << unknown;
  }
  EXPECT_THAT(message_of([] { render(kChatMl, {}); }), HasSubstr("a chat has no messages"));
  EXPECT_THAT(message_of([] {
                render(kChatMl, {{"system", "a"}});
              }),
              HasSubstr("a chat has a system message alone"));
  EXPECT_THAT(message_of([] {
                render(kChatMl, {{"user", "a"}, {"tool", "b"}});
              }),
              HasSubstr("messages[1].role: found \"tool\", expected user or assistant"));
}

}  // namespace
}  // namespace zero
