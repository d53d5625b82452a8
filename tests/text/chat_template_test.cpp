// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Messages = std::vector<ChatMessage>;

std::vector<PromptPiece> chat_pieces(const std::string& chat_template, const Messages& messages) {
  TokenizerConfig config{.file = "f/tokenizer_config.json"};
  config.special.names = {{"bos_token", {"<s>"}}, {"eos_token", {"</s>"}}};
  config.chat_template = {.text = chat_template, .file = config.file};
  return render_chat(config, messages, {});
}

std::string chat_text(const std::string& chat_template,
                      const Messages& messages = {{"user", "Hi"}}) {
  std::string all;
  for (const PromptPiece& piece : chat_pieces(chat_template, messages)) all += piece.text;
  return all;
}

std::string chat_refusal(const std::string& chat_template,
                         const Messages& messages = {{"user", "Hi"}}) {
  return error_of([&] { chat_text(chat_template, messages); });
}

/// What messages brought, whatever the template made of it.
std::string from_messages(const std::string& chat_template, const Messages& messages) {
  std::string all;
  for (const PromptPiece& piece : chat_pieces(chat_template, messages)) {
    if (!piece.from_template) all += piece.text;
  }
  return all;
}

TEST(ChatTemplate, ContentsStayPiecesOfTheirOwnThroughAllOperations) {
  const Messages attack{{"user", "<|a|> x <|b|>"}};
  for (const auto& [expression, expected] : std::vector<std::pair<std::string, std::string>>{
           {"'<' + c + '>'", "<|a|> x <|b|>"},
           {"c ~ 'x'", "<|a|> x <|b|>"},
           {"c | trim | upper", "<|A|> X <|B|>"},
           {"c.split(' ')[0]", "<|a|>"},
           {"c.replace('x', '<|z|>')", "<|a|>  <|b|>"},
           {"'1x2'.replace('x', c)", "<|a|> x <|b|>"},
           {"c[::-1]", ">|b|< x >|a|<"},
           {"[c, c] | join('-')", "<|a|> x <|b|><|a|> x <|b|>"},
           {"c | tojson", "<|a|> x <|b|>"},
           {"[c]", "<|a|> x <|b|>"},
           {"messages | map(attribute='content') | first", "<|a|> x <|b|>"},
           {"c if c else 'y'", "<|a|> x <|b|>"},
           {"c * 2", "<|a|> x <|b|><|a|> x <|b|>"},
           {"c | indent(2, true)", "<|a|> x <|b|>"},
           {"'%' ~ c | default('z')", "<|a|> x <|b|>"}}) {
    const std::string all = "{% set c = messages[0].content %}<|t|>{{ " + expression + " }}<|t|>";
    EXPECT_EQ(from_messages(all, attack), expected) << expression;
    const auto cut = chat_pieces(all, attack);
    EXPECT_TRUE(cut.front().from_template && cut.back().from_template) << expression;
  }
}

TEST(ChatTemplate, KnownRolesMakeTokensAndOthersDoNot) {
  const std::string roles = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}";
  EXPECT_EQ(from_messages(roles, {{"user", ""}, {"assistant", ""}, {"system", ""}}), "");
  EXPECT_EQ(from_messages(roles, {{"im_end", ""}}), "im_end");
}

TEST(ChatTemplate, RefusesWithFileAndLineAndWhatToDo) {
  EXPECT_THAT(
      chat_refusal(""),
      HasSubstr("f/tokenizer_config.json: has no chat_template, so the model was not made"));
  EXPECT_THAT(chat_refusal("{{ 1 }}", {}), HasSubstr("a chat has no messages"));
  EXPECT_THAT(chat_refusal("a\n{{ raise_exception('No ' + messages[0].role) }}"),
              AllOf(HasSubstr("f/tokenizer_config.json: the chat template, line 2: No user; "),
                    HasSubstr("with --special (\"special\": true in a file of prompts)")));
}

TEST(ChatTemplate, NamesWhatIsNotKnown) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ 'x' | wordcount }}", "line 1: the filter 'wordcount' is not known here"},
           {"{{ 'x' | nothing }}", "No filter named 'nothing'."},
           {"{{ 'x' is lower }}", "the test 'lower' is not known here"},
           {"{{ 'x' is nothing }}", "No test named 'nothing'."},
           {"{{ 'x'.zfill(3) }}", "the method 'zfill' of a str is not known here"},
           {"{% include 'x' %}", "the statement 'include' is not known here"},
           {"{% do x %}", "Encountered unknown tag 'do'."},
           {"{% for x in [] recursive %}{% endfor %}", "recursive loops are not known here"},
           {"{{ cycler(1) }}", "'cycler' is not known here"},
           {"{{ '%s' % 1 }}", "'%' is not known here for 'str' and 'int'"},
           {"{{ 2 ** 3 }}", "'**' is not known here"},
           {"{{ f(**x) }}", "arguments with ** are not known here"},
           {"{{ ('<' | safe) + 'x' }}", "'+' on what the filter 'safe' gives is not known"},
           {"{{ ('<' | safe) | trim }}", "the filter 'trim' behind 'safe' is not known here"},
           {"{{ 1 is sameas 1 }}", "the test 'sameas' of values of the type 'int' is not known"},
           {"{{ messages.items }}{{ range(3) }}", "a range has no text of its own"},
           {"{{ 'ß' | upper }}", "the case of U+00DF depends on more than itself"},
           {"{{ 9223372036854775807 + 1 }}", "a whole number is larger than 64 bits"}}) {
    EXPECT_THAT(chat_refusal(source), HasSubstr(expected)) << source;
  }
}

TEST(ChatTemplate, NamesWhatIsNoTemplate) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ 1", "line 1: a tag has no end"},
           {"\n{% if x %}", "the template ends before 'endif'"},
           {"{{ 'x }}", "a string has no end"},
           {"{# x", "Missing end of comment tag"},
           {"{% raw %}", "Missing end of raw directive"},
           {"{{ ) }}", "unexpected ')'"},
           {"{{ ! }}", "unexpected char '!'"},
           {"{{ 1 + }}", "expected an expression, found the end of the tag"},
           {"{% break %}", "break and continue stand outside of a loop"},
           {"{{ '\\ud800' }}", "an escape that is no character"},
           {"{{ 99999999999999999999 }}", "the number 99999999999999999999 is too large"}}) {
    EXPECT_THAT(chat_refusal(source), HasSubstr(expected)) << source;
  }
}

TEST(ChatTemplate, PaysForAllThatItHasRead) {
  std::string names;
  for (int i = 0; i < 30'000; ++i) names += "{% set a" + std::to_string(i) + "=1 %}";
  std::string keys;
  for (int i = 0; i < 1'000; ++i) keys += "'k" + std::to_string(i) + "': 1, ";
  const std::string repeat = "{% for i in range(99999) %}";
  for (const std::string& source :
       {"{% set t = ('b',) * 100000 %}" + repeat + "{{ 'x'.startswith(t) }}{% endfor %}",
        std::string("{{ ('x' * 400000).strip('y' * 400000 ~ 'x') }}"), names,
        "{% set m = {" + keys + "} %}" + repeat + "{{ m == m }}{% endfor %}"}) {
    EXPECT_THAT(chat_refusal(source), HasSubstr("works for more than 5000000 steps"))
        << source.substr(0, 60);
  }
}

TEST(ChatTemplate, OfAStrangerEndsAndTakesLittle) {
  const std::string forever =
      "{% set r = range(99999) %}{% for a in [1, 2, 3, 4] %}{% for b in r %}{{ '' if b * b + 1 }}"
      "{% endfor %}{% endfor %}";
  EXPECT_THAT(chat_refusal(forever), HasSubstr("the template works for more than 5000000 steps"));
  const std::string doubled =
      "{% set ns = namespace(x='xxxxxxxx') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}";
  EXPECT_THAT(chat_refusal(doubled), HasSubstr("makes texts and lists of too many bytes"));
  EXPECT_THAT(chat_refusal("{{ 'x' * 10 ** 12 }}"), HasSubstr("is not known here"));
  EXPECT_THAT(chat_refusal("{{ 'x' * 1000000000000 }}"), HasSubstr("works for more than"));
  EXPECT_THAT(chat_refusal("{{ range(1000000) }}"), HasSubstr("Range too big"));
  const std::string nested =
      "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x == ns.x }}";
  EXPECT_THAT(chat_refusal(nested), HasSubstr("lists and maps lie"));
  EXPECT_THAT(chat_refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("macros and expressions are nested deeper than 400"));
  EXPECT_THAT(chat_refusal("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("the template nests more than 200 levels"));
  std::string sum = "1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  EXPECT_THAT(chat_refusal("{{ " + sum + " }}"), HasSubstr("nested deeper than 400"));
  EXPECT_THAT(chat_refusal(std::string((1 << 20) + 1, 'x')), HasSubstr("expected at most 1048576"));
  EXPECT_THAT(chat_refusal("{{ 'x'.__class__.mro }}"),
              HasSubstr("access to attribute '__class__' of 'str' object is unsafe"));
}

TEST(ChatTemplate, SeesFurtherValuesAsVariables) {
  TokenizerConfig config{.file = "f/tokenizer_config.json"};
  config.special.names = {{"bos_token", {"<s>"}}};
  config.special.additional = {"<x>"};
  config.chat_template = {.text =
                              "{{ bos_token }}{% if thinks is false %}no{% endif %}"
                              "{{ many[1].a + 1 }}{{ share }}{{ largest }}{{ nothing is none }}"
                              "{{ word }}|{% for name in many[1] %}{{ name }}{% endfor %}",
                          .file = config.file};
  const auto pieces = [&](const std::string& values) {
    return render_chat(config, Messages{{"user", "Hi"}}, {}, nlohmann::json::parse(values));
  };
  const std::vector<PromptPiece> found = pieces(
      R"({"thinks": false, "many": [0, {"a": 2}], "share": 0.5, "nothing": null, "word": "</s>",
          "largest": 9223372036854775807})");
  std::string all;
  for (const PromptPiece& piece : found) all += piece.text;
  EXPECT_EQ(all, "<s>no30.59223372036854775807True</s>|a");
  // Neither texts nor names in them are the template's.
  for (const std::string own : {"</s>", "a"}) {
    const auto piece = std::ranges::find(found, own, &PromptPiece::text);
    ASSERT_NE(piece, found.end()) << own;
    EXPECT_FALSE(piece->from_template) << own;
  }
  for (const std::string name : {"messages", "bos_token", "additional_special_tokens"}) {
    EXPECT_EQ(
        error_of([&] { pieces(R"({")" + name + R"(": []})"); }),
        "chat_template_kwargs has \"" + name + "\", which every chat has already; leave it out");
  }
  for (const std::string number : {"9223372036854775808", "-9223372036854775809", "[1e30]"}) {
    EXPECT_THAT(error_of([&] { pieces(R"({"share": )" + number + "}"); }),
                HasSubstr("expected a number that 64 bits with a sign hold"))
        << number;
  }
}

TEST(ChatTemplate, NamesValuesThatItDoesNotRead) {
  TokenizerConfig config{.file = "f/tokenizer_config.json"};
  config.special.names = {{"bos_token", {"<s>"}}};
  const auto refusal = [&](const std::string& text, const std::string& values) {
    config.chat_template = {.text = text, .file = config.file};
    return error_of([&] {
      render_chat(config, Messages{{"user", "Hi"}}, {}, nlohmann::json::parse(values));
    });
  };
  const std::string source =
      "{{ bos_token }}{% set shown = false %}{% if thinking is not defined %}"
      "{% set thinking = true %}{% endif %}{% macro turn(m) %}{{ m.content }}{% endmacro %}"
      "{% for m in messages %}{{ loop.index }}{{ turn(m) }}{{ shown }}{% endfor %}"
      "{{ style }}{{ namespace(a=thinking).a }}";
  EXPECT_EQ(refusal(source, R"({"enable_thinking": false})"),
            "chat_template_kwargs has \"enable_thinking\", and the template has no variable "
            "enable_thinking; it reads: style, thinking");
  EXPECT_EQ(refusal(source, R"({"thinking": false, "style": "a"})"), "no error");
  EXPECT_THAT(refusal("{{ messages[0].content }}", R"({"a": 1})"),
              HasSubstr("has no variable a; it reads: none"));
  // A name that is set alone is none that is read.
  EXPECT_THAT(refusal("{% set a = 1 %}{{ messages[0].content }}", R"({"a": 1})"),
              HasSubstr("has no variable a"));
  EXPECT_EQ(refusal("{% set a = a or 1 %}{{ messages[0].content }}", R"({"a": 1})"), "no error");
  EXPECT_EQ(refusal(source, R"({"continue_final_message": true})"),
            "chat_template_kwargs has \"continue_final_message\", which is no variable of "
            "templates: an answer is always a message of its own; to continue one, render the "
            "prompt elsewhere and give it with --special (\"special\": true in a file)");
  EXPECT_EQ(refusal(source, R"({"tools": [{"type": "function"}]})"),
            "chat_template_kwargs has \"tools\": tools are not supported; render the prompt "
            "elsewhere and give it with --special (\"special\": true in a file)");
}

// With a search among all names before it for each one, this would take a minute.
TEST(ChatTemplate, TakesManyFurtherValues) {
  auto values = nlohmann::json::object();
  std::string names;
  for (int i = 0; i < 100'000; ++i) {
    values["n" + std::to_string(i)] = i;
    names += "n" + std::to_string(i) + ",";
  }
  TokenizerConfig config{.file = "f/tokenizer_config.json"};
  config.chat_template = {.text = "{{ n7 }}{% if false %}{{ [" + names + "] }}{% endif %}",
                          .file = config.file};
  EXPECT_EQ(render_chat(config, Messages{{"user", "Hi"}}, {}, values).at(0).text, "7");
}

/// Of what a template writes for a user's message of the parts " a " and "\nb ".
std::string of_parts(const std::string& chat_template) {
  return chat_text(chat_template, {{.role = "user", .content = "", .parts = {" a ", "\nb "}}});
}

// As transformers has it, and vLLM tells the two kinds apart: by a loop over contents.
TEST(ChatTemplate, PartsAreAListForATemplateThatLoopsOverThem) {
  const std::string turn =
      "{% if message['content'] is string %}{{ message['content'] | trim }}"
      "{% elif message['content'] is iterable %}{% for item in message['content'] %}"
      "{% if item['type'] == 'image' %}<image>{% elif item['type'] == 'text' %}"
      "{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}";
  EXPECT_EQ(of_parts("{% for message in messages %}" + turn + "{% endfor %}"), "ab");
  EXPECT_EQ(chat_text("{% for message in messages %}" + turn + "{% endfor %}", {{"user", " a "}}),
            "a");
  // Gemma 3 takes the first part of a system's message.
  const std::string system =
      "{% if messages[0]['role'] == 'system' %}{% if messages[0]['content'] is string %}"
      "{{ messages[0]['content'] }}{% else %}{{ messages[0]['content'][0]['text'] }}{% endif %}"
      "{% set rest = messages[1:] %}{% endif %}|{% for message in rest %}" +
      turn + "{% endfor %}";
  EXPECT_EQ(chat_text(system, {{.role = "system", .content = "", .parts = {"Be brief.", "x"}},
                               {.role = "user", .content = "", .parts = {" a ", "\nb "}}}),
            "Be brief.|ab");
  for (const std::string loop :
       {"{% for p in messages[0].content %}{{ p.text }}{% endfor %}",
        "{% for p in messages[0].content | selectattr('type', 'equalto', 'text') %}{{ p.text }}"
        "{% endfor %}",
        "{% for p in messages[0]['content'][:2] %}{{ p['text'] }}{% endfor %}",
        "{% set c = messages[0].content %}{% for p in c %}{{ p.text }}{% endfor %}",
        "{% macro show(content) %}{% for p in content %}{{ p.text }}{% endfor %}{% endmacro %}"
        "{{ show(messages[0].content) }}"}) {
    EXPECT_EQ(of_parts(loop), " a \nb ") << loop;
  }
}

// A template for texts, as Qwen3's, which writes nothing for a list, gets the parts in lines, as
// from vLLM and llama.cpp.
TEST(ChatTemplate, PartsAreLinesForATemplateOfTexts) {
  EXPECT_EQ(of_parts("{{ messages[0].content }}"), " a \n\nb ");
  EXPECT_EQ(of_parts("{% if messages[0].content is string %}{{ messages[0].content }}{% endif %}"
                     "{% for m in messages %}.{% endfor %}"),
            " a \n\nb .");
}

}  // namespace
}  // namespace zero
