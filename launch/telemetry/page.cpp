// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/page.h"

#include <fmt/format.h>

#include <array>

#include "base/message_text.h"

namespace zero {
namespace {

constexpr std::string_view kPageStyle = R"(
:root { color-scheme: light dark;
  --ink: #1b1f24; --paper: #ffffff; --grid: #d5d9df; --dim: #59616b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --paper: #16191d; --grid: #3a4048; --dim: #a3abb5; }
}
body { margin: 1.5rem auto; max-width: 62rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.1rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
path, rect, circle, i { fill: var(--of); background: var(--of); }
svg path { stroke: var(--paper); stroke-width: 0.6; }
.left { text-anchor: start; } .middle { text-anchor: middle; } .right { text-anchor: end; }
.grid { stroke: var(--grid); stroke-width: 1; }
.legend { margin: 0.3rem 0; color: var(--dim); font-size: 13px; }
.legend span { display: inline-block; margin-right: 1rem; white-space: nowrap; }
i { display: inline-block; width: 0.75em; height: 0.75em; margin-right: 0.4em; border-radius: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.15rem 1.2rem 0.15rem 0;
  border-bottom: 1px solid var(--grid); }
th { color: var(--dim); font-weight: 500; }
)";

}  // namespace

std::string page_mark(std::string_view program) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"generator\" content=\"{}\"/>\n",
      program);
}

std::string page_begin(std::string_view program, std::string_view title, std::string_view heading,
                       std::string_view style) {
  return fmt::format(
      "{}<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      page_mark(program), html_text(title), kPageStyle, style, html_text(heading));
}

std::string html_text(std::string_view text) {
  constexpr std::string_view kSpecial = "&<>\"";
  constexpr std::array<std::string_view, 4> kNames{"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string safe;
  for (const char c : printable_line(text, text.size())) {
    const std::size_t special = kSpecial.find(c);
    special == kSpecial.npos ? safe += c : safe += kNames[special];
  }
  return safe;
}

}  // namespace zero
