// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/config_with.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CorruptionSection, ChecksAreOffUnlessAskedFor) {
  const TrainConfig::Run off = config_with({}).run;
  EXPECT_FALSE(off.check_collectives);
  EXPECT_EQ(off.check_compute_every, 0);
  const TrainConfig::Run on =
      config_with({"run.device=cpu", "run.check_collectives=true", "run.check_compute_every=50"})
          .run;
  EXPECT_TRUE(on.check_collectives);
  EXPECT_EQ(on.check_compute_every, 50);
  EXPECT_THAT(option_help(),
              AllOf(HasSubstr("run.check_collectives "), HasSubstr("run.check_compute_every ")));
}

TEST(CorruptionSection, RefusesWhatItCannotDoByName) {
  EXPECT_THAT(refusal_with({"run.check_compute_every=-1"}), HasSubstr("run.check_compute_every"));
  EXPECT_THAT(refusal_with({"run.check_colectives=true"}),
              HasSubstr("did you mean \"run.check_collectives\"?"));
  const std::string on_gpus =
      refusal_with({"run.device=cuda", "run.check_collectives=true", "run.check_compute_every=5"});
  EXPECT_THAT(on_gpus,
              AllOf(HasSubstr("run.check_collectives is true, and run.device is \"cuda\": the "
                              "check reads values where the host computes with them; leave it out, "
                              "or give run.device=cpu"),
                    HasSubstr("run.check_compute_every is 5, and run.device is \"cuda\"")));
}

}  // namespace
}  // namespace zero::testing
