// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>

#include "tests/case_names.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"
#include "tests/support/combinations.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Meshes with as many micro-batches at once as `data` ranks.
std::vector<MeshShape> meshes(int data) {
  std::vector<MeshShape> all;
  for (const int tensor : {1, 2, 3, 4}) {
    for (int replicate = 1; replicate <= data; replicate *= 2)
      all.push_back({replicate, data / replicate, tensor});
  }
  return all;
}

struct Outcome {
  std::uint64_t hash = 0;
  std::vector<double> norms;
};

Outcome train(const plain::Setup& setup) {
  Outcome outcome;
  std::mutex mutex;
  plain::run(setup.mesh.ranks(), setup, [&](plain::Trainer& trainer, Communicator&) {
    std::vector<double> norms;
    for (int i = 0; i < 2; ++i) norms.push_back(trainer.step().gradient_norm);
    const std::uint64_t hash = trainer.engine().states().hash();
    const std::lock_guard lock(mutex);
    if (outcome.norms.empty()) outcome = {hash, norms};
    EXPECT_EQ(hash, outcome.hash);
    EXPECT_EQ(norms, outcome.norms);
  });
  return outcome;
}

class Slices : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Slices, ::testing::Values(DType::fp32, DType::bf16),
                         zero::testing::kCaseName);

/// Without clipping an update is elementwise, so nothing tells a sliced run from a whole one.
TEST_P(Slices, TrainToTheStateOfWholeTensorsAndCountEachElementOnceInTheNorm) {
  const Outcome whole = train(plain::sliced_setup(3, {1, 2, 1}, GetParam()));
  for (const MeshShape& mesh : meshes(2)) {
    std::optional<Outcome> first;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{}, stage {}", plain::text(mesh), stage));
      const Outcome sliced = train(plain::sliced_setup(stage, mesh, GetParam()));
      EXPECT_EQ(sliced.hash, whole.hash);
      for (std::size_t i = 0; i < whole.norms.size(); ++i)
        EXPECT_NEAR(sliced.norms[i], whole.norms[i], 1e-12 * whole.norms[i]);
      if (!first) first = sliced;
      EXPECT_EQ(sliced.norms, first->norms);
    }
  }
}

TEST_P(Slices, GiveTheSameBitsAtOneTensorDegreeWhateverElseIsSet) {
  for (const int tensor : {2, 3}) {
    plain::Setup run = plain::sliced_setup(0, {1, 4, tensor}, GetParam());
    run.engine.gradient_clipping = 0.1;
    const Outcome expected = train(run);
    const auto same = [&](const plain::Setup& other) {
      const Outcome found = train(other);
      EXPECT_EQ(found.hash, expected.hash);
      EXPECT_EQ(found.norms, expected.norms);
    };
    for (const auto& [stage, replicate] : testing::cases_of({3, 1}, {2, 1, 4})) {
      run.engine.stage = stage;
      run.mesh = {replicate, 4 / replicate, tensor};
      same(run);
      run.engine.limits.reduce_bucket_elements = 300;
      run.engine.overlap = false;
      same(run);
      run.engine.limits.persistence_threshold = 100;
      run.engine.limits.prefetch_elements = 0;
      run.engine.overlap = true;
      same(run);
      run.engine.limits = plain::options(0).limits;
    }
  }
}

TEST_P(Slices, AreReadAndWrittenWhole) {
  for (const MeshShape& mesh : meshes(2)) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(fmt::format("{}, stage {}", plain::text(mesh), stage));
      plain::run(mesh.ranks(), plain::sliced_setup(stage, mesh, GetParam()),
                 [](plain::Trainer& trainer, Communicator&) {
                   Engine& engine = trainer.engine();
                   for (const StateKind kind : {StateKind::parameter, StateKind::moment1}) {
                     for (const HeldTensor& tensor : engine.states().held(kind)) {
                       std::vector<float> values = plain::read(engine, tensor.name, kind);
                       std::iota(values.begin(), values.end(), 1.0F);
                       engine.states().write(tensor.name, kind, View::of(std::span(values)));
                       EXPECT_EQ(plain::read(engine, tensor.name, kind), values) << tensor.name;
                     }
                   }
                 });
    }
  }
}

TEST_P(Slices, AreViewsWhosePrimaryOnesListEachElementOnce) {
  for (const MeshShape& mesh : meshes(2)) {
    std::mutex mutex;
    std::map<std::string, std::vector<int>> primary;
    std::map<std::string, std::vector<int>> held;
    plain::run(
        mesh.ranks(), plain::sliced_setup(1, mesh, GetParam()),
        [&](plain::Trainer& trainer, Communicator&) {
          for (const HeldTensor& tensor : trainer.engine().states().held(StateKind::moment0)) {
            std::int64_t count = 1;
            for (const std::int64_t dimension : tensor.shape) count *= dimension;
            const std::lock_guard lock(mutex);
            primary[tensor.name].resize(static_cast<std::size_t>(count));
            held[tensor.name].resize(static_cast<std::size_t>(count));
            for (const StateView& view : tensor.views) {
              for (std::int64_t e = 0; e < view.values.count(); ++e) {
                ++held[tensor.name].at(static_cast<std::size_t>(view.begin + e));
                if (view.primary)
                  ++primary[tensor.name].at(static_cast<std::size_t>(view.begin + e));
              }
            }
          }
        });
    for (const auto& [name, times] : primary)
      EXPECT_THAT(times, Each(1)) << name << plain::text(mesh);
    EXPECT_THAT(held["embedding.tokens"], Each(mesh.replicate)) << plain::text(mesh);
    EXPECT_THAT(held["single.value"], Each(mesh.replicate * mesh.tensor)) << plain::text(mesh);
    const int holders = mesh.tensor == 2 ? 2 : 1;
    EXPECT_THAT(held["second.bias"], Each(::testing::Ge(holders * mesh.replicate)));
  }
}

}  // namespace
}  // namespace zero
