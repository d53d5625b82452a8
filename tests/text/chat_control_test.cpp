// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/chat_template.h"

namespace zero {
namespace {

using Messages = std::vector<ChatMessage>;

/// How many of the tokens that a template writes with these messages are one of `tokens`.
std::ptrdiff_t controls(const std::string& chat_template, const Messages& messages,
                        const std::vector<std::string>& tokens, bool special = true) {
  TokenizerConfig config{.file = "f"};
  config.chat_template = {.text = chat_template, .file = "f"};
  std::uint32_t id = 2500;
  for (const std::string& token : tokens) {
    config.added_tokens.push_back({.content = token, .id = id++, .special = special});
  }
  const auto tokenizer = make_bpe_tokenizer("f", byte_tokenizer_json(), config);
  const auto ids = tokenizer->encode_pieces(render_chat(config, messages, {}));
  return std::ranges::count_if(ids, [](std::uint32_t token) { return token >= 2500; });
}

/// Those of "<|im_end|>" in <|im...n_end|> with `way` within, between two of the template's own;
/// `c` and `n` are what two messages contain, the second as a number.
std::ptrdiff_t joined_by(const std::string& way, const std::string& c, const std::string& n = "") {
  return controls(
      "{% set c = messages[0].content %}{% set n = messages[1].content | int %}"
      "<|im_end|><|im" +
          way + "_end|><|im_end|>",
      {{"user", c}, {"user", n}}, {"<|im_end|>"});
}

// What the engine promises is that contents write no control tokens. In transformers an empty one
// does here, as any text would that it puts between the two halves.
TEST(ChatControls, AnEmptyContentJoinsNoHalves) {
  EXPECT_EQ(joined_by("", ""), 3);
  EXPECT_EQ(joined_by("{{ '' }}{{ messages[0].role[:0] }}", ""), 3);
  for (const char* way :
       {"{{ c }}",
        "{{ c ~ '' }}",
        "{{ '' + c }}",
        "{{ c * 2 }}",
        "{{ c | trim }}",
        "{{ c | upper }}",
        "{{ c | title }}",
        "{{ c | capitalize }}",
        "{{ c | indent }}",
        "{{ c | safe }}",
        "{{ c | string }}",
        "{{ c | reverse }}",
        "{{ c | replace('a', 'b') }}",
        "{{ c | default('') }}",
        "{{ c | default('', true) }}",
        "{{ c | first }}",
        "{{ c | last }}",
        "{{ c | list | join }}",
        "{{ [c] | join }}",
        "{{ [c, ''] | map('trim') | join }}",
        "{{ [c] | select | join }}",
        "{{ c.strip() }}",
        "{{ c.split() | join }}",
        "{{ c.split('x')[0] }}",
        "{{ c.splitlines() | join }}",
        "{{ ''.join([c]) }}",
        "{{ c.join([]) }}",
        "{{ c.removeprefix('x') }}",
        "{{ c[0] }}",
        "{{ c[1:] }}",
        "{{ c or '' }}",
        "{{ c and 'x' }}",
        "{{ c if c else '' }}",
        "{{ c if c }}",
        "{{ 'x' if c != '' else '' }}",
        "{{ 'x' * (c | length) }}",
        "{{ 'x'[:c | length] }}",
        "{{ {'': ''}[c] }}",
        "{{ {'': ''}.get(c) }}",
        "{{ namespace(a=c).a }}",
        "{{ strftime_now(c) }}",
        "{% if c %}{{ c }}{% endif %}",
        "{% if not c %}{% else %}x{% endif %}",
        "{% if c | length > 0 %}x{% endif %}",
        "{% if c is eq 'x' %}x{% endif %}",
        "{% for x in c %}{{ x }}{% endfor %}",
        "{% for x in c.split() %}{{ x }}{% endfor %}",
        "{% for x in messages if x.content %}{{ x.content }}{% endfor %}",
        "{% for x in range(c | length) %}x{% endfor %}",
        "{% set x %}{{ c }}{% endset %}{{ x }}",
        "{% set x %}{{ c }}{% endset %}{{ x | upper }}",
        "{% filter lower %}{{ c }}{% endfilter %}",
        "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(c) }}",
        "{% set x = 'a' %}{% if c == '' %}{% set x = '' %}{% endif %}{{ x }}",
        "{% set s = namespace(a='a') %}{% if not c %}{% set s.a = '' %}{% endif %}{{ s.a }}"}) {
    EXPECT_EQ(joined_by(way, ""), 2) << way;
  }
}

TEST(ChatControls, AContentThatIsTakenAwayJoinsNoHalves) {
  for (const char* way :
       {"{{ c.replace('Q', '') }}",
        "{{ c | replace(c, '') }}",
        "{{ c | trim('Q') }}",
        "{{ c.strip('Q') }}",
        "{{ c[1:] }}",
        "{{ c[:0] }}",
        "{{ c.split('Q') | join }}",
        "{{ c.removesuffix('Q') }}",
        "{{ 'Q'.replace(c, '') }}",
        "{{ 'Q' | replace(c, '') }}",
        "{{ 'Q'.strip(c) }}",
        "{{ 'Q' | trim(c) }}",
        "{{ 'Q'.removeprefix(c) }}",
        "{{ 'Q'.split(c) | join }}",
        "{{ ('' if 'Q' in c else 'x') }}",
        "{{ '' if c.startswith('Q') else 'x' }}",
        "{{ ['x', ''][c | length] }}",
        "{{ ['', 'x'] | reject('in', [c, 'x']) | join }}",
        "{{ 'x'[2 - (c | length):] }}",
        "{{ ['x'] | reject('in', 'x' ~ c) | join }}",
        "{{ ['x'][1:c | length] | join }}",
        "{{ messages | selectattr('content', 'eq', 'x') | map(attribute='role') | join }}"}) {
    EXPECT_EQ(joined_by(way, "Q"), 2) << way;
  }
  for (const char* way :
       {"{{ ('<|im' ~ c ~ '_end|>').replace('Q', '') }}",
        "{{ ('<|im' ~ c ~ '_end|>').replace(c, '') }}",
        "{{ ('<|im' ~ c ~ '_end|>').split(c) | join }}",
        "{{ ('<|im' ~ c ~ '_end|>').split('Q') | join }}", "{{ '<|imQ_end|>'.replace(c, '') }}",
        "{{ '<|imQ_end|>' | replace(c, '') }}", "{{ '<|imQ_end|>'.split(c) | join }}",
        "{{ ['<|im', 'Q', '_end|>'] | reject('in', c) | join }}",
        "{{ ''.join(['<|im', 'Q', '_end|>'] | reject('in', c)) }}",
        "{% for x in ['<|im', 'Q', '_end|>'] if x != c %}{{ x }}{% endfor %}",
        "{% for x in ['<|im', 'Q', '_end|>'] | reject('in', c) %}{{ x }}{% endfor %}",
        "{% for x in ['<|im', 'Q', '_end|>'] %}{{ x if x != c }}{% endfor %}",
        "{{ '<|imQ_end|>'.replace('Q', '', c | length) }}",
        "{{ '<|imQ_end|>' | replace('Q', '', c | length) }}",
        "{{ '<x|xixmx_xexnxdx|x>'[::1 + (c | length)] }}", "<|im{{ 'Q_end|>'.removeprefix(c) }}",
        "<|im{{ 'Q_end|>' | trim(c) }}", "<|im{{ 'Q_end|>'[c | length:] }}",
        "{{ ('<|IM' ~ c[1:] ~ '_END|>') | lower }}"}) {
    EXPECT_EQ(controls("{% set c = messages[0].content %}" + std::string(way), {{"user", "Q"}},
                       {"<|im_end|>"}),
              0)
        << way;
  }
  EXPECT_EQ(joined_by("{{ ''[:n] }}", "", "0"), 2);
  EXPECT_EQ(joined_by("{{ 'x' * n }}", "", "0"), 2);
}

// Tokens that the template writes whole act beside contents, empty or not.
TEST(ChatControls, ATemplatesOwnTokensActBesideContents) {
  const std::string turns =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m.content %}"
      "{{ m['content'] | trim + '<|im_end|>' + '\n' }}{% else %}{{ m.content }}<|im_end|>\n"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_' ~ 'start|>' }}{% endif %}";
  for (const char* content : {"", " ", "hi", " hi <|im_end|>"}) {
    EXPECT_EQ(controls(turns, {{"user", content}}, {"<|im_start|>", "<|im_end|>"}), 3) << content;
  }
}

// So do those of which contents choose one.
TEST(ChatControls, ATemplatesOwnTokensActAsContentsChooseThem) {
  const auto written = [](const std::string& way) {
    return controls("{% set c = messages[0].content %}" + way, {{"user", "hi"}, {"assistant", ""}},
                    {"<|im_end|>", "<|user|>"});
  };
  for (const char* way :
       {"<|{{ 'user' if c else 'x' }}|>", "<|{{ 'user' if c == 'hi' else 'x' }}|>",
        "<|{% if c %}user{% else %}x{% endif %}|>", "<|{{ {'hi': 'user'}[c] }}|>",
        "<|{{ {'hi': 'user'}.get(c, 'x') }}|>", "<|{{ c and 'user' }}|>",
        "<|{{ ['user', 'x'][c | length - 2] }}|>",
        "{% if c %}{% set r = 'user' %}<|{{ r }}|>{% endif %}",
        "{% if c %}{% set r %}user{% endset %}{% endif %}<|{{ r }}|>",
        "{% for m in messages if m.content %}{% set r = m.role %}<|{{ r }}|>{% endfor %}",
        "{% for m in messages | selectattr('content') %}<|{{ m.role }}|>{% endfor %}",
        "<|{{ messages | selectattr('content') | map(attribute='role') | first }}|>",
        "{{ ['<|', 'im_end', '|>', c] | join }}", "{{ ''.join(['<|', 'im_end', '|>']) if c }}",
        "{{ '<|' ~ messages[0].role ~ '|>' ~ c | trim }}",
        "{{ ('<|user|>' ~ c).replace('i', 'x') }}", "{{ 'X'.replace('X', '<|user|>') if c }}",
        "{{ ('<|' ~ ('user' if 'h' in c else 'x') ~ '|>') | trim }}"}) {
    EXPECT_EQ(written(way), 1) << way;
  }
}

TEST(ChatControls, PartsOfContentsWriteNoTokens) {
  const auto written = [](const std::string& way, const std::vector<std::string>& parts) {
    return controls("<|im_end|>" + way + "<|im_end|>",
                    {{.role = "user", .content = "", .parts = parts}}, {"<|im_end|>"});
  };
  const std::string loop = "{% for p in messages[0].content %}{{ p.text }}{% endfor %}";
  for (const std::string& way : {loop, std::string("{{ messages[0].content }}")}) {
    EXPECT_EQ(written(way, {"<|im_end|>", "a <|im_end|>"}), 2) << way;
    EXPECT_EQ(written(way, {"<|im", "_end|>"}), 2) << way;
    EXPECT_EQ(written("<|im" + way + "_end|>", {""}), 2) << way;
    EXPECT_EQ(written("<|im" + way + "_end|>", {"", ""}), 2) << way;
  }
}

TEST(ChatControls, NumbersCountedInContentsWriteNoTokens) {
  std::vector<std::string> tokens;
  for (const char digit : std::string_view("0123456789")) {
    tokens.push_back(std::string("<|r_") + digit + "|>");
  }
  const auto written = [&](const std::string& way, const std::string& c) {
    return controls("{% set c = messages[0].content %}<|r_" + way + "|>",
                    {{"user", c}, {"assistant", "x"}}, tokens);
  };
  for (const char* way :
       {"7", "{{ 3 + 4 }}", "{{ 'abc' | length }}", "{{ messages | length }}",
        "{{ messages[0] | length }}", "{{ 'abc'.find('c') }}", "{{ [1, 2].index(2) }}",
        "{% for m in messages %}{{ loop.index if loop.last }}{% endfor %}",
        "{% for m in messages[1:] %}{{ loop.length }}{% endfor %}"}) {
    EXPECT_EQ(written(way, "abcd"), 1) << way;
  }
  for (const char* way :
       {"{{ c | length }}",
        "{{ c | count }}",
        "{{ c.find('c') }}",
        "{{ c.rfind('d') }}",
        "{{ c.count('a') }}",
        "{{ 'abcd'.count(c) }}",
        "{{ 'abcd'.find(c) }}",
        "{{ c | int }}",
        "{{ c | int(5) }}",
        "{{ c | list | length }}",
        "{{ [c] | length }}",
        "{{ c.split('b') | length }}",
        "{{ (c.split('b') | length) + 1 }}",
        "{{ [[c]] | length }}",
        "{{ ['a', 'b'].index(c[0]) }}",
        "{{ ['a', 'b'].count(c[0]) }}",
        "{{ [c] | map('length') | first }}",
        "{{ ['a', 'x'] | select('in', c) | list | length }}",
        "{{ 'abc'.replace(c[0], '') | length }}",
        "{{ ['a'] | map('replace', c, '') | list | length }}",
        "{{ messages | map(attribute='content') | list | length }}",
        "{{ range(c | length) | length }}",
        "{{ 5 if c else 6 }}",
        "{{ c == 'a' and 5 or 6 }}",
        "{{ (c | length) // 2 }}",
        "{{ -(c | length) + 9 }}",
        "{{ c | length | string }}",
        "{{ c | length | tojson }}",
        "{{ [5, 6, 7, 8, 9][c | length] }}",
        "{{ {4: 5}[c | length] }}",
        "{{ {'abcd': 5}.get(c) }}",
        "{{ '0123456789'[c | length] }}",
        "{% for x in c %}{{ loop.index if loop.last }}{% endfor %}",
        "{% for x in c %}{{ loop.length if loop.last }}{% endfor %}",
        "{% for x in c %}{{ loop.revindex0 if loop.last }}{% endfor %}",
        "{% for x in ['a', 'z'] if x in c %}{{ loop.length }}{% endfor %}",
        "{% for x in c %}{% if loop.last %}{{ loop.cycle(1, 2) }}{% endif %}{% endfor %}",
        "{% for x in messages if 'a' in x.content %}{{ loop.index }}{% endfor %}",
        "{% set s = namespace(n=0) %}{% for x in c %}{% set s.n = s.n + 1 %}{% endfor %}{{ s.n }}",
        "{{ {c: 1, 'abc': 2} | length }}",
        "{{ '4' * (c.count('a')) }}",
        "{% for x in c.split('b') if x == 'a' %}4{% endfor %}",
        "{{ [4, 4][:c.count('a')] | length }}",
        "{{ messages | selectattr('content') | list | length }}",
        "{% for m in messages | selectattr('content') %}{{ loop.length if loop.last }}{% endfor %}",
        "{% set n = 0 %}{% if 'a' in c %}{% set n = 5 %}{% endif %}{{ n }}"}) {
    EXPECT_EQ(written(way, "abcd"), 0) << way;
  }
}

// Here the conversation has no message of the assistant; its tokens are none for contents.
TEST(ChatControls, TokensComposedForRolesThatAreMissingAreNoneForContents) {
  for (const auto& [chat_template, token] : std::vector<std::pair<std::string, std::string>>{
           {"{% for m in messages %}{{ '@' + m.role + ':' + m.content }}{% endfor %}",
            "@assistant:"},
           {"{% for m in messages %}@{{ m.role | upper }}: {{ m.content }}{% endfor %}",
            "@ASSISTANT:"},
           {"{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}{% endfor %}",
            "Assistant:"},
           {"{% for m in messages %}{% if m.role == 'user' %}{% set r = 'hum' ~ 'an' %}{% else %}"
            "{% set r = 'bot' %}{% endif %}{{ '@' ~ r ~ '@' ~ m.content }}{% endfor %}",
            "@bot@"},
           {"{{ '@' ~ {'user': 'human', 'assistant': 'gpt'}[messages[0].role] ~ '@' }}"
            "{{ messages[0].content }}",
            "@gpt@"},
           {"{% for m in messages %}{{ '@ROLE:'.replace('ROLE', m.role) ~ m.content }}{% endfor %}",
            "@assistant:"},
           {"{% for m in messages %}{{ '@@'[0] ~ m.role | title ~ ' :'[1] ~ m.content }}{% endfor "
            "%}",
            "@Assistant:"}}) {
    const auto count = [&](const Messages& messages) {
      return controls(chat_template, messages, {token}, false);
    };
    EXPECT_EQ(count({{"assistant", "a"}}), 1) << chat_template;
    EXPECT_EQ(count({{"assistant", token}}), 1) << chat_template;
    EXPECT_EQ(count({{"user", token}}), 0) << chat_template;
    EXPECT_EQ(count({{"user", "a " + token + " b"}}), 0) << chat_template;
  }
  // Words that the template does not write stay the tokens that transformers finds.
  EXPECT_EQ(controls("{{ '@' + messages[0].role + ':' + messages[0].content }}", {{"user", "bird"}},
                     {"bird"}, false),
            1);
}

}  // namespace
}  // namespace zero
