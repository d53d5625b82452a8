// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <vector>

#include "tests/device/calls_to_disk.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const PromptSettings kUsual{
    .max_tokens = 40, .sampling = {.temperature = 0.5, .top_k = 7, .seed = 9}, .stop = {"usual"}};

TEST(Prompt, TakesItsOwnSettingsBeforeTheUsualOnes) {
  const Prompt plain = parse_prompt(R"({"prompt": "a\tbé"})", kUsual, "f:1");
  EXPECT_EQ(std::get<std::string>(plain.content), "a\tbé");
  EXPECT_EQ(plain.settings.max_tokens, 40);
  EXPECT_EQ(plain.settings.sampling.top_k, 7);
  EXPECT_THAT(plain.settings.stop, ElementsAre("usual"));
  const Prompt own = parse_prompt(
      R"({"ids": [3, 4294967295], "max_tokens": 2, "temperature": 1, "top_k": 0, "top_p": 0.5,
          "min_p": 0.1, "repetition_penalty": 1.5, "seed": 18446744073709551615, "stop": [],
          "priority": -3})",
      kUsual, "f:1");
  EXPECT_THAT(std::get<Prompt::Ids>(own.content), ElementsAre(3, 4294967295));
  EXPECT_EQ(own.settings.max_tokens, 2);
  const Sampling& sampling = own.settings.sampling;
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.top_p, 0.5);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(sampling.seed, 18446744073709551615U);
  EXPECT_TRUE(own.settings.stop.empty());
  EXPECT_EQ(own.settings.priority, -3);
  EXPECT_EQ(plain.settings.priority, 0);
  const Prompt chat = parse_prompt(
      R"({"messages": [{"role": "system", "content": "s"}, {"content": "u", "role": "user"}]})",
      kUsual, "f:1");
  const auto& messages = std::get<Prompt::Messages>(chat.content);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[1].role, "user");
  EXPECT_EQ(messages[1].content, "u");
}

TEST(Prompt, IsReadAsOtherProgramsWriteIt) {
  const Prompt chat = parse_prompt(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a "},
                                                    {"type": "text", "text": "b"}],
                        "tool_calls": null}],
          "stop": "END", "seed": null, "chat_template_kwargs": {"enable_thinking": false}})",
      kUsual, "f:1");
  const auto& messages = std::get<Prompt::Messages>(chat.content);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].content, "");
  EXPECT_THAT(messages[0].parts, ElementsAre("a ", "b"));
  EXPECT_THAT(chat.settings.stop, ElementsAre("END"));
  EXPECT_EQ(chat.settings.sampling.seed, 9U);
  EXPECT_EQ(chat.settings.template_values, nlohmann::json({{"enable_thinking", false}}));
}

struct BadLine {
  const char* name;
  const char* line;
  const char* complaint;
};

class PromptRefusal : public ::testing::TestWithParam<BadLine> {};

TEST_P(PromptRefusal, NamesLineKeyFoundAndExpected) {
  const std::string message =
      error_of([] { parse_prompt(GetParam().line, kUsual, "some.jsonl:12"); });
  EXPECT_THAT(message, ::testing::StartsWith("some.jsonl:12: "));
  EXPECT_THAT(message, HasSubstr(GetParam().complaint));
}

INSTANTIATE_TEST_SUITE_P(
    Lines, PromptRefusal,
    ::testing::Values(
        BadLine{"NoJson", "{\"prompt\": }", "not JSON"},
        BadLine{"NoObject", "[1]", "found [1]; expected an object with prompt, ids or messages"},
        BadLine{"NoUtf8", "{\"prompt\": \"\xff\"}", "byte 12 is not UTF-8"},
        BadLine{"HalfSurrogate", R"({"prompt": "\ud800"})", "not JSON"},
        BadLine{"Twice", R"({"prompt": "a", "prompt": "b"})", "key \"prompt\" is given twice"},
        BadLine{"UnknownKey", R"({"prompt": "a", "top-k": 3})",
                "unknown key \"top-k\"; expected one of ids, messages, prompt, and any of "
                "chat_template_kwargs, max_tokens, min_p, priority, repetition_penalty, seed, "
                "special, stop, "
                "temperature, top_k, top_p"},
        BadLine{"MaxNewTokens", R"({"prompt": "a", "max_new_tokens": 3})",
                "unknown key \"max_new_tokens\"; give max_tokens"},
        BadLine{"MaxCompletionTokens", R"({"prompt": "a", "max_completion_tokens": 3})",
                "unknown key \"max_completion_tokens\"; give max_tokens"},
        BadLine{"Model", R"({"prompt": "a", "model": "some"})",
                "unknown key \"model\"; leave it out: --model names the model of all prompts"},
        BadLine{"Stream", R"({"prompt": "a", "stream": true})",
                "unknown key \"stream\"; leave it out: text appears as it comes"},
        BadLine{"Thinking", R"({"messages": [], "enable_thinking": false})",
                "unknown key \"enable_thinking\"; give \"chat_template_kwargs\": "
                "{\"enable_thinking\": ...}"},
        BadLine{"Batch",
                R"({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
                    "body": {"messages": [{"role": "user", "content": "a"}]}})",
                "unknown key \"body\"; give the fields of \"body\" themselves: an answer with "
                "--json has the number of its line"},
        BadLine{"Tools", R"({"messages": [], "tools": []})",
                "unknown key \"tools\"; tools are not supported; render the prompt elsewhere and "
                "give it with --special (\"special\": true in a file)"},
        BadLine{"ToolCalls",
                R"({"messages": [{"role": "assistant", "content": null,
                                  "tool_calls": [{"id": "1"}]}]})",
                "messages[0].tool_calls: tools are not supported; render the prompt elsewhere"},
        BadLine{"ToolMessage", R"({"messages": [{"role": "tool", "content": null}]})",
                "messages[0].content: found none in a tool's message; tools are not supported; "
                "render"},
        BadLine{"SpecialNoFlag", R"({"prompt": "a", "special": 1})",
                "special: found 1, expected true or false"},
        BadLine{"SpecialIds", R"({"ids": [1], "special": true})",
                "special is true beside ids or messages; expected it beside a prompt"},
        BadLine{"Nothing", R"({"seed": 3})", "has 0 of prompt, ids and messages; expected one"},
        BadLine{"Both", R"({"prompt": "a", "ids": [1]})", "has 2 of prompt, ids and messages"},
        BadLine{"Number", R"({"prompt": 3})", "prompt: found 3, expected a text"},
        BadLine{"IdsNoList", R"({"ids": "1,2"})", "ids: found \"1,2\", expected a list"},
        BadLine{"NegativeId", R"({"ids": [1, -2]})",
                "ids: found -2, expected a whole number from 0 to 4294967295"},
        BadLine{"LargeId", R"({"ids": [4294967296]})", "ids: found 4294967296, expected a whole"},
        BadLine{"Messages", R"({"messages": {}})", "messages: found {}, expected a list"},
        BadLine{"Message", R"({"messages": [{"role": "user"}]})",
                "messages[0].content is missing; expected a text"},
        BadLine{"MessageKey", R"({"messages": [{"role": "u", "content": "", "name": "n"}]})",
                "messages[0].name: found \"n\", expected no field of that name"},
        BadLine{"NoMessage", R"({"messages": ["a"]})",
                "messages[0]: found \"a\", expected an object"},
        BadLine{"Image",
                R"({"messages": [{"role": "u", "content": [{"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "b"}}]}]})",
                "messages[0].content[1].type: found \"image_url\", expected \"text\""},
        BadLine{"ArgumentsNoObject",
                R"({"messages": [{"role": "u", "content": ""}], "chat_template_kwargs": [1]})",
                "chat_template_kwargs: found [1], expected an object"},
        BadLine{"NoTokens", R"({"prompt": "a", "max_tokens": 0})",
                "max_tokens: found 0, expected at least 1"},
        BadLine{"HalfToken", R"({"prompt": "a", "max_tokens": 1.5})",
                "max_tokens: found 1.5, expected a whole number"},
        BadLine{"Temperature", R"({"prompt": "a", "temperature": -1})",
                "temperature is -1; expected a number from 0"},
        BadLine{"TextTemperature", R"({"prompt": "a", "temperature": "1"})",
                "temperature: found \"1\", expected a number"},
        BadLine{"TopK", R"({"prompt": "a", "top_k": -1})", "top_k is -1; expected a whole number"},
        BadLine{"HugeTopK", R"({"prompt": "a", "top_k": 9223372036854775808})",
                "top_k: found 9223372036854775808, expected a whole number"},
        BadLine{"TopP", R"({"prompt": "a", "top_p": 0})", "top_p is 0; expected a number above 0"},
        BadLine{"MinP", R"({"prompt": "a", "min_p": 2})", "min_p is 2; expected a number from 0"},
        BadLine{"Penalty", R"({"prompt": "a", "repetition_penalty": 0})",
                "repetition_penalty is 0; expected a number above 0"},
        BadLine{"Priority", R"({"prompt": "a", "priority": 1001})",
                "priority: found 1001, expected -1000 to 1000"},
        BadLine{"Seed", R"({"prompt": "a", "seed": -1})",
                "seed: found -1, expected a whole number"},
        BadLine{"StopNumber", R"({"prompt": "a", "stop": 3})",
                "stop: found 3, expected a list of texts"},
        BadLine{"EmptyStop", R"({"prompt": "a", "stop": ["b", ""]})",
                "stop is an empty text; expected one character at least"}),
    [](const auto& test) { return test.param.name; });

TEST(PromptFile, GoesOnBehindABadLine) {
  const Scratch folder;
  const std::string file =
      folder.write("p.jsonl", "{\"prompt\": \"a\"}\r\n\n  \r\n{\"prompt\": 1}\n{\"ids\": [2]}");
  std::vector<std::string> refused;
  const auto prompts =
      read_prompts(file, kUsual, [&](std::int64_t number, const std::string& message) {
        EXPECT_EQ(number, 4);
        refused.push_back(message);
      });
  EXPECT_THAT(refused, ElementsAre(file + ":4: prompt: found 1, expected a text"));
  ASSERT_EQ(prompts.size(), 2U);
  EXPECT_EQ(prompts[1].number, 5);
  EXPECT_EQ(prompts[1].where, file + ":5");
  const auto error = [&](const std::string& path) {
    return error_of([&] { read_prompts(path, kUsual, {}); });
  };
  EXPECT_EQ(error(folder.path("none")),
            folder.path("none") + ": cannot read the prompts: No such file or directory");
  EXPECT_THAT(error(folder.path()), HasSubstr("cannot read the prompts: "));
}

// Who writes a pipe may take any time.
TEST(PromptFile, IsReadInCallsToTheDisk) {
  const Scratch folder;
  const std::string file = folder.write("p.jsonl", "{\"prompt\": \"a\"}\n");
  const std::vector<long> numbers{SYS_openat, SYS_read};
  EXPECT_THAT(counted_calls(numbers, [&] { read_prompts(file, kUsual, {}); }),
              ::testing::UnorderedElementsAreArray(numbers));
}

TEST(PromptIds, AreNumbersBetweenCommas) {
  EXPECT_THAT(parse_ids("1,22,0", "--prompt-ids"), ElementsAre(1, 22, 0));
  for (const char* bad : {"", "1,", ",1", "1, 2", "-1", "1.5", "4294967296", "one"}) {
    EXPECT_EQ(error_of([&] { parse_ids(bad, "--prompt-ids"); }),
              std::string("--prompt-ids: found \"") + bad + "\"; expected token ids as 1,2,3");
  }
}

}  // namespace
}  // namespace zero::testing
