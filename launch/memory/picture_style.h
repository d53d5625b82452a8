// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace zero {

/// Phases that have a colour of their own, p0 to p9 of the style, in this order.
inline constexpr std::array<std::string_view, 10> kPicturePhases{
    "setup",  "load", "forward",    "backward",      "recompute",
    "update", "step", "validation", "between steps", "end"};

/// The style of a picture of memory: a colour for each class by its name, legible on light paper
/// and on dark.
inline constexpr std::string_view kPictureStyle = R"(
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --grid: #d5d9df; --dim: #59616b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --paper: #16191d; --grid: #3a4048; --dim: #a3abb5; }
}
body { margin: 1.5rem auto; max-width: 62rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.1rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
.left { text-anchor: start; } .middle { text-anchor: middle; } .right { text-anchor: end; }
.grid { stroke: var(--grid); stroke-width: 1; }
.peak { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
svg path { stroke: var(--paper); stroke-width: 0.6; }
.legend { margin: 0.3rem 0; color: var(--dim); font-size: 13px; }
.legend span { display: inline-block; margin-right: 1rem; white-space: nowrap; }
i { display: inline-block; width: 0.75em; height: 0.75em; margin-right: 0.4em; border-radius: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.15rem 1.2rem 0.15rem 0; border-bottom: 1px solid var(--grid); }
th { color: var(--dim); font-weight: 500; }
.parameters { fill: #4269d0; background: #4269d0; }
.gathered { fill: #6cc5b0; background: #6cc5b0; }
.gradients { fill: #efb118; background: #efb118; }
.optimizer { fill: #3ca951; background: #3ca951; }
.activations { fill: #e8604c; background: #e8604c; }
.communication { fill: #a463f2; background: #a463f2; }
.staging { fill: #8fb8f0; background: #8fb8f0; }
.other { fill: #9c6b4e; background: #9c6b4e; }
.phase { fill: #8a929c; background: #8a929c; }
.p0 { fill: #8a929c; background: #8a929c; }
.p1 { fill: #6f7f94; background: #6f7f94; }
.p2 { fill: #3b82c4; background: #3b82c4; }
.p3 { fill: #d9822b; background: #d9822b; }
.p4 { fill: #b8456b; background: #b8456b; }
.p5 { fill: #2f9e6e; background: #2f9e6e; }
.p6 { fill: #5c6bc0; background: #5c6bc0; }
.p7 { fill: #8e5bb5; background: #8e5bb5; }
.p8 { fill: #c3c9d1; background: #c3c9d1; }
.p9 { fill: #6b5d4d; background: #6b5d4d; }
)";

}  // namespace zero
