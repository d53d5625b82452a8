// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/unit_listener.h"

#include <gtest/gtest.h>

#include <string>

namespace zero::testing {
namespace {

/// Keeps what it hears, a letter a call.
class Hearing final : public UnitListener {
 public:
  explicit Hearing(bool hears) : hears_(hears) {}
  void unit(std::string_view name, Phase) override { heard += std::string(name) + ";"; }
  void tensor(std::string_view name, std::int64_t, const View&) override {
    heard += std::string(name) + ";";
  }
  bool hears_operations() const override { return hears_; }
  void begin(const OpCost& cost) override { heard += cost.name + "("; }
  void end() noexcept override { heard += ")"; }
  void touches(const View&, Access) override { heard += "t"; }
  void copies(const View&, const View&) override { heard += "c"; }
  void moves(const View&, const View&) override { heard += "m"; }

  std::string heard{};

 private:
  bool hears_;
};

void tell(UnitListener& listener) {
  listener.unit("h.0", Phase::forward);
  listener.tensor("x", 0, {});
  listener.begin({.name = "gelu"});
  listener.touches({}, Access::read);
  listener.end();
  listener.copies({}, {});
  listener.moves({}, {});
}

TEST(UnitListeners, TellEachWhatItHears) {
  UnitListeners all;
  EXPECT_TRUE(all.empty());
  EXPECT_FALSE(all.hears_operations());
  Hearing units(false);
  all.add(units);
  EXPECT_FALSE(all.empty());
  EXPECT_FALSE(all.hears_operations()) << "passes may be replayed as graphs";
  Hearing operations(true);
  all.add(operations);
  EXPECT_TRUE(all.hears_operations());
  tell(all);
  EXPECT_EQ(units.heard, "h.0;x;");
  EXPECT_EQ(operations.heard, "h.0;x;gelu(t)cm");
}

}  // namespace
}  // namespace zero::testing
