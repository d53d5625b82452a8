// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <rapidcheck.h>

#include "optim/optimizer_config.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

TEST(Matches, PlainTextMatchesItselfOnly) {
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("h.0.bias", "h.0.bias"));
  EXPECT_FALSE(matches("h.0.bias", "h.0.bia"));
  EXPECT_FALSE(matches("h.0.bias", "h.0.biases"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a", ""));
}

TEST(Matches, AStarTakesAnyRunEvenAnEmptyOne) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "anything"));
  EXPECT_TRUE(matches("*.bias", "h.11.mlp.c_fc.bias"));
  EXPECT_TRUE(matches("h.*.bias", "h.0.ln_1.bias"));
  EXPECT_TRUE(matches("**a**", "a"));
  EXPECT_FALSE(matches("*.bias", "bias"));
  EXPECT_FALSE(matches("h.*", "wte.weight"));
}

TEST(Matches, AStarGivesBackWhatTheRestNeeds) {
  EXPECT_TRUE(matches("*ab", "aabaab"));
  EXPECT_TRUE(matches("a*b*c", "axbxbxcxc"));
  EXPECT_FALSE(matches("a*b*c", "axbxbx"));
}

TEST(Matches, AQuestionMarkTakesExactlyOneCharacter) {
  EXPECT_TRUE(matches("h.?.bias", "h.3.bias"));
  EXPECT_FALSE(matches("h.?.bias", "h.11.bias"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_TRUE(matches("?*", "a"));
}

// The definition, one character at a time.
bool matches_by_definition(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return matches_by_definition(pattern.substr(1), text) ||
           (!text.empty() && matches_by_definition(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         matches_by_definition(pattern.substr(1), text.substr(1));
}

TEST(Matches, AgreesWithItsDefinition) {
  EXPECT_TRUE(rc::check([] {
    const auto from = [](const std::string& letters) {
      return *rc::gen::resize(10, rc::gen::container<std::string>(rc::gen::elementOf(letters)));
    };
    const std::string pattern = from("ab*?");
    const std::string text = from("ab");
    RC_ASSERT(matches(pattern, text) == matches_by_definition(pattern, text));
  }));
}

const std::vector<ParameterGroup> kGroups = {
    {.pattern = "*.bias", .weight_decay = 0.0},
    {.pattern = "h.0.*", .learning_rate_scale = 0.5},
    {.pattern = "h.*", .learning_rate_scale = 0.25, .weight_decay = 0.3},
};

TEST(SettingsFor, TheFirstMatchDecides) {
  const GroupSettings bias = settings_for(kGroups, "h.0.bias", 0.1);
  EXPECT_EQ(bias.learning_rate_scale, 1);
  EXPECT_EQ(bias.weight_decay, 0);
  const GroupSettings later = settings_for(kGroups, "h.1.weight", 0.1);
  EXPECT_EQ(later.learning_rate_scale, 0.25);
  EXPECT_EQ(later.weight_decay, 0.3);
}

TEST(SettingsFor, AnUnsetDecayIsTheOptimizers) {
  const GroupSettings settings = settings_for(kGroups, "h.0.weight", 0.1);
  EXPECT_EQ(settings.learning_rate_scale, 0.5);
  EXPECT_EQ(settings.weight_decay, 0.1);
}

TEST(SettingsFor, NoMatchChangesNothing) {
  for (const auto& groups : {kGroups, {}}) {
    const GroupSettings settings = settings_for(groups, "wte.weight", 0.1);
    EXPECT_EQ(settings.learning_rate_scale, 1);
    EXPECT_EQ(settings.weight_decay, 0.1);
  }
}

TEST(SettingsFor, ValuesOutOfRangeNameTheirGroup) {
  EXPECT_EQ(error_of([] { settings_for({{.pattern = "*", .learning_rate_scale = -1}}, "a", 0); }),
            "parameter group \"*\" has learning_rate_scale -1 and weight_decay 0, expected finite "
            "values of 0 or more");
  EXPECT_EQ(
      error_of([] { settings_for({{.pattern = "a", .weight_decay = -0.1}}, "a", 0); }),
      "parameter group \"a\" has learning_rate_scale 1 and weight_decay -0.1, expected finite "
      "values of 0 or more");
  EXPECT_THAT(
      error_of([] { settings_for({{.pattern = "a", .learning_rate_scale = 1e39}}, "a", 0); }),
      ::testing::HasSubstr("learning_rate_scale 1e+39"));
}

}  // namespace
}  // namespace zero::testing
