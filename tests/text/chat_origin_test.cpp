// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/errors.h"
#include "text/chat_template.h"
#include "text/jinja/evaluator.h"

namespace zero {
namespace {

// The templates below write none of the characters of these contents: letters beyond ASCII, "7",
// line ends, and the "\" of their escapes.
const std::vector<ChatMessage> kMessages{{"user",
                                          "\xc3\xa9"
                                          "7\xc3\xa0\n\n\xc3\xa8"},
                                         {"assistant", "77"},
                                         {"user", "-77"},
                                         {"assistant", "%%7\xc3\xa9%d%e"}};

bool of_contents(char c) {
  return (static_cast<unsigned char>(c) & 0x80U) != 0 || c == '7' || c == '\n' || c == '\\';
}

struct Written {
  std::string of_template{};
  std::string of_contents{};
};

Written written(const std::string& source) {
  TokenizerConfig config{.file = "f"};
  config.chat_template = {
      .text =
          "{% set c = messages[0].content %}{% set n = messages[1].content | int %}"
          "{% set m = messages[2].content | int %}{% set f = messages[3].content %}" +
          source,
      .file = "f"};
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 5;
  now.tm_mday = 4;
  Written all;
  for (const PromptPiece& piece : render_chat(config, kMessages, now)) {
    (piece.from_template ? all.of_template : all.of_contents) += piece.text;
  }
  return all;
}

void expect_marked(const std::string& source) {
  const Written all = written(source);
  EXPECT_TRUE(std::ranges::none_of(all.of_template, of_contents)) << source << all.of_template;
  EXPECT_TRUE(std::ranges::any_of(all.of_contents, of_contents)) << source;
}

/// What of contents can be written through the thing; nothing if it gives no characters of them.
using Ways = std::map<std::string_view, std::vector<std::string>>;

void expect_all(const std::vector<std::string_view>& names, const Ways& ways) {
  for (const std::string_view name : names) {
    const auto found = ways.find(name);
    ASSERT_NE(found, ways.end()) << name << " is not walked: add what contents go through it";
    for (const std::string& way : found->second) expect_marked("{{ " + way + " }}");
  }
}

TEST(ChatOrigins, StayThroughAllFilters) {
  const Ways ways{
      {"trim", {"c | trim", "c | trim('x')", "('x' ~ c) | trim('x')"}},
      {"upper", {"c | upper"}},
      {"lower", {"c | upper | lower"}},
      {"capitalize", {"c | capitalize"}},
      {"title", {"c | title"}},
      {"default", {"nothing | default(c)", "c | default('a')", "'' | default(n, true)"}},
      {"d", {"nothing | d(c)", "c | d('a')"}},
      {"length", {}},
      {"count", {}},
      {"replace", {"c | replace('x', 'y')", "'axa' | replace('x', c)", "'ab' | replace('', c)"}},
      {"string", {"c | string", "n | string", "[c] | string", "{c: n} | string"}},
      {"safe", {"c | safe", "n | safe", "[c] | safe"}},
      {"int", {"n", "'' ~ n", "m | int", "f | int(n)", "'x' | int(c)", "'1' | int + m"}},
      {"float", {"n | float", "messages[1].content | float", "f | float(c)", "n | float | int"}},
      {"abs", {"m | abs", "n | abs"}},
      {"indent",
       {"c | indent", "c | indent(2, true, true)", "('a' ~ c) | indent(first=true)",
        "'a' | indent(c, true)"}},
      {"tojson",
       {"c | tojson", "c | tojson(ensure_ascii=true)",
        "[n, c] | tojson(indent=2) | replace('\\n', '')", "{c: n} | tojson(sort_keys=true)",
        "{n: 1} | tojson", "[1, 2] | tojson(separators=(c, 'x'))",
        "{'a': 1} | tojson(separators=('x', c))", "(n | float) | tojson"}},
      {"join",
       {"[c, n] | join('-')", "['a', 'b'] | join(c)", "messages | join(c, attribute='role')",
        "messages | join(attribute='content')", "c | join('-')"}},
      {"list", {"c | list", "messages | list", "{c: 1} | list"}},
      {"first", {"c | first", "[n] | first", "{c: 1} | first"}},
      {"last", {"c | last", "[n] | last"}},
      {"reverse", {"c | reverse", "[c, n] | reverse | list"}},
      {"items", {"{c: n} | items | list"}},
      {"dictsort", {"{c: 1, 'a': n} | dictsort", "{'a': c} | dictsort(by='value')"}},
      {"sort", {"[c, 'a'] | sort", "messages | sort(attribute='content')", "[n, 1] | sort"}},
      {"map",
       {"[c] | map('upper') | list", "messages | map(attribute='content') | list",
        "['77' ~ c] | map('trim') | list if c == 'a' else [c] | map('trim') | list",
        "[messages[1].content] | map('int') | list", "[{}] | map(attribute='x', default=c) | list",
        "['axa'] | map('replace', 'x', c) | list"}},
      {"select", {"[c] | select | list", "[n] | select('number') | list"}},
      {"reject", {"[c] | reject('none') | list"}},
      {"selectattr", {"messages | selectattr('role', 'in', ['user']) | list"}},
      {"rejectattr", {"messages | rejectattr('role', 'eq', 'assistant') | list"}}};
  expect_all(jinja::filter_names(), ways);
}

TEST(ChatOrigins, StayThroughAllMethods) {
  const Ways ways{
      {"strip", {"c.strip()", "c.strip('x')", "('x' ~ c).strip('x')"}},
      {"lstrip", {"c.lstrip()"}},
      {"rstrip", {"c.rstrip()"}},
      {"upper", {"c.upper()"}},
      {"lower", {"c.upper().lower()"}},
      {"title", {"c.title()"}},
      {"capitalize", {"c.capitalize()"}},
      {"split", {"c.split()", "c.split('x')", "('axb' ~ c).split('x', 1)"}},
      {"rsplit", {"c.rsplit('x', 1)", "(c ~ 'x').rsplit('x')"}},
      {"splitlines", {"c.splitlines()"}},
      {"startswith", {}},
      {"endswith", {}},
      {"removeprefix", {"c.removeprefix('x')", "('x' ~ c).removeprefix('x')"}},
      {"removesuffix", {"c.removesuffix('x')", "(c ~ 'x').removesuffix('x')"}},
      {"replace", {"c.replace('x', 'y')", "'axa'.replace('x', c, 1)", "'ab'.replace('', c)"}},
      {"join", {"c.join(['a', 'b'])", "'-'.join([c])", "'-'.join(c)"}},
      {"find", {}},
      {"rfind", {}},
      {"count", {}},
      {"isdigit", {}},
      {"isnumeric", {}},
      {"isalpha", {}},
      {"items", {"{c: n}.items() | list"}},
      {"keys", {"{c: 1}.keys() | list"}},
      {"values", {"{'a': c}.values() | list"}},
      {"get", {"{'a': c}.get('a')", "{}.get('a', n)", "{'a': 1}.get('b', c)"}},
      {"copy", {"{c: n}.copy()", "[c].copy()"}},
      {"index", {}},
      {"cycle", {"'' }}{% for i in [1, 2] %}{{ loop.cycle(c, n) }}{% endfor %}{{ ''"}},
      {"changed", {}}};
  expect_all(jinja::method_names(), ways);
}

TEST(ChatOrigins, StayThroughAllFunctions) {
  const Ways ways{
      {"raise_exception", {}},
      {"strftime_now",
       {"strftime_now(c)", "strftime_now('%Y' ~ c)", "strftime_now(f)", "strftime_now('%-d' ~ f)",
        "strftime_now(f ~ '%')"}},
      {"range", {"range(n, n + 1) | list", "range(m, 0, n) | list", "range(0, 99, n) | list"}},
      {"namespace",
       {"namespace(a=c).a", "namespace({'a': c}).a", "namespace({c: n})[c]",
        "'' }}{% set s = namespace(a=1) %}{% set s.a = c %}{{ s.a ~ s['a']"}},
      {"dict", {"dict(a=c)", "dict({c: 1})", "dict({c: 1}, b=2) | tojson", "dict({'a': n})"}},
      {"cycler", {}},
      {"joiner", {}},
      {"lipsum", {}}};
  expect_all(jinja::function_names(), ways);
  EXPECT_EQ(written("{{ strftime_now('<%Y>' ~ c) }}").of_template, "<2026>");
  EXPECT_EQ(written("{{ strftime_now('%d' ~ f) }}").of_template, "04");
  EXPECT_EQ(written("{{ strftime_now('%d' ~ f) }}").of_contents,
            "%7\xc3\xa9"
            "04 4");
}

// A test gives a boolean, which has no characters of what it was given.
TEST(ChatOrigins, StayThroughAllOperators) {
  for (const char* way : {"c + 'a'",
                          "'a' + c",
                          "[c] + [n]",
                          "n + 1",
                          "1 + n",
                          "n - 1",
                          "n * 1",
                          "1 * n",
                          "n / 1",
                          "n // 1",
                          "n % 100",
                          "-m",
                          "+n",
                          "n + 0.5",
                          "c * 2",
                          "2 * c",
                          "[c] * 2",
                          "c ~ 1",
                          "1 ~ n",
                          "c[0]",
                          "c[-1]",
                          "c[::-1]",
                          "c[1:]",
                          "[c][0]",
                          "[n][-1:]",
                          "{'a': c}['a']",
                          "{'a': n}.a",
                          "c if c else 'a'",
                          "'a' if not c else c",
                          "c and c",
                          "'' or c",
                          "c or 'a'",
                          "[c]",
                          "(c,)",
                          "{c: c}",
                          "{n: n}",
                          "[[c], {'a': (n,)}]"}) {
    expect_marked("{{ " + std::string(way) + " }}");
  }
  for (const char* way :
       {"{% set x = c %}{{ x }}", "{% set x %}a{{ c }}{% endset %}{{ x }}",
        "{% set x | trim %}a{{ c }}{% endset %}{{ x }}",
        "{% filter upper %}a{{ c }}{% endfilter %}", "{% filter replace('x', c) %}x{% endfilter %}",
        "{% for x in c %}{{ x }}{% endfor %}",
        "{% for k, v in {c: n}.items() %}{{ k }}{{ v }}{% endfor %}",
        "{% for x in [c, n] %}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
        "{% for x in [c] if x == c %}{{ x }}{% endfor %}", "{% with x = c %}{{ x }}{% endwith %}",
        "{% macro f(a, b=n) %}{{ a }}{{ b }}{% endmacro %}{{ f(c) ~ f(a='x') }}",
        "{% set x, y = c, n %}{{ x ~ y }}", "{% generation %}{{ c }}{% endgeneration %}"}) {
    expect_marked(way);
  }
}

}  // namespace
}  // namespace zero
