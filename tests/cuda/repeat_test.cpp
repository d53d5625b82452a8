// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/stream.h"
#include "tests/cuda/case.h"
#include "tests/errors.h"

// Work that is captured as a graph.
namespace zero::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A number on the device, to which every body adds one by way of another.
class Repeats : public EmulatedDevice {
 protected:
  Repeats() { start({}); }

  void start(const emulated::Settings& settings) {
    restart(settings);
    graph_ = nullptr;
    bodies_ = 0;
    zero_ = 0;
    one_ = upload(View::of(std::span(&host_one_, 1)));
    sum_ = upload(View::of(std::span(&zero_, 1)));
    middle_ = allocate(1, DType::fp32);
  }
  Stream& compute() { return device_->compute(); }
  void add_one() {
    device_->kernels().convert(compute(), sum_, middle_);
    device_->kernels().combine(compute(), {middle_, one_}, ReduceOp::sum, sum_);
  }
  void repeat(
      const Stream::Work& more = [] {},
      CapturedGraph::Check check = CapturedGraph::Check::at_first) {
    compute().repeat(graph_, "a pass", check, [&] {
      ++bodies_;
      add_one();
      more();
    });
  }
  float sum() { return values<float>(sum_).at(0); }
  template <class T>
  std::vector<T> values(const View& view) {
    const std::vector<std::byte> bytes = download(view);
    std::vector<T> all(bytes.size() / sizeof(T));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  float host_one_ = 1;
  float zero_ = 0;
  View one_, sum_, middle_;
  std::unique_ptr<CapturedGraph> graph_;
  int bodies_ = 0;
};

TEST_F(Repeats, RunOnceAreCapturedOnceAndAreLaunchedFromThenOn) {
  using Order = emulated::Settings::Order;
  for (const auto order : {Order::lazy, Order::prompt, Order::seeded}) {
    start({.order = order, .seed = 5});
    repeat();
    EXPECT_EQ(0, graph_->nodes());
    for (int i = 1; i < 7; ++i) repeat();
    EXPECT_EQ(2, bodies_);
    EXPECT_EQ(2, graph_->nodes());
    EXPECT_EQ("", graph_->refusal());
    EXPECT_EQ(6, emulated::calls("cudaGraphLaunch"));
    EXPECT_EQ(1, emulated::calls("cudaGraphInstantiate"));
    EXPECT_EQ(7, sum());
    graph_ = nullptr;
  }
}

TEST_F(Repeats, TakeFewerCallsOfTheRuntime) {
  repeat();
  repeat();
  const std::int64_t before = emulated::calls();
  repeat();
  const std::int64_t launched = emulated::calls() - before;
  add_one();
  EXPECT_LT(launched, emulated::calls() - before - launched);
  EXPECT_EQ(4, sum());
}

TEST_F(Repeats, AreNotCapturedWhereAnObserverHearsOfEachPiece) {
  struct Counter final : StreamListener {
    bool listens() const noexcept override { return true; }
    void ran(std::string_view /*what*/, Mark /*begin*/, Mark /*end*/) noexcept override { ++heard; }
    void waited(std::string_view /*meter*/, Mark /*begin*/, Mark /*end*/) noexcept override {}
    int heard = 0;
  };
  Counter counter;
  compute().listen(&counter);
  for (int i = 0; i < 4; ++i) repeat();
  compute().listen(nullptr);
  EXPECT_EQ(graph_, nullptr);
  EXPECT_EQ(4, bodies_);
  EXPECT_EQ(8, counter.heard);
  EXPECT_EQ(0, emulated::calls("cudaGraphLaunch"));
  EXPECT_EQ(4, sum());
}

TEST_F(Repeats, AreOrderedByEventsAsOtherWorkIs) {
  View seen = allocate(1, DType::fp32);
  for (int i = 1; i < 6; ++i) {
    const Event before = compute().record();
    repeat();
    device_->communication().wait(compute().record());
    device_->kernels().convert(device_->communication(), sum_, seen);
    compute().wait(device_->communication().record());
    before.synchronize();
    EXPECT_EQ(static_cast<float>(i), values<float>(seen).at(0));
  }
}

TEST_F(Repeats, MayEndWhileTheirWorkIsQueued) {
  for (int i = 0; i < 4; ++i) repeat();
  graph_ = nullptr;
  EXPECT_EQ(4, sum());
  for (int i = 0; i < 4; ++i) repeat();
  EXPECT_EQ(8, sum());
  EXPECT_EQ(4, bodies_);
}

TEST_F(Repeats, HaveNoEventsHostCodeOrRepeats) {
  const auto refused = [&](const char* call, const Stream::Work& work) {
    EXPECT_THAT(error_of([&] { repeat(work); }),
                AllOf(HasSubstr(std::string("cuda: ") + call + " inside \"a pass\""),
                      HasSubstr("work of one stream, without events and host code")));
  };
  for (int calls = 0; calls < 2; ++calls) {  // the second is captured
    refused("record", [&] { compute().record(); });
    refused("mark", [&] { compute().mark(); });
    refused("submit_host", [&] { compute().submit_host("x", [] {}); });
    refused("synchronize", [&] { compute().synchronize(); });
    device_->kernels().zero(device_->communication(), one_);
    const Event event = device_->communication().record();
    refused("wait", [&] { compute().wait(event); });
    std::unique_ptr<CapturedGraph> inner;
    refused("repeat",
            [&] { compute().repeat(inner, "inner", CapturedGraph::Check::at_first, [] {}); });
    device_->kernels().convert(device_->communication(), View::of(std::span(&host_one_, 1)), one_);
    repeat([&] { compute().wait(Event()); });  // for nothing
  }
  repeat();
  EXPECT_EQ(3 + 6, sum());  // what the first bodies had submitted before ran
}

TEST_F(Repeats, ThatSubmitOtherWorkAreFound) {
  const auto zero = [&](View view) {
    return [&, view] { device_->kernels().zero(compute(), view); };
  };
  repeat();
  EXPECT_EQ(
      "cuda: \"a pass\" is repeated, but has submitted other work than the first time: 3 piece(s), "
      "another number; expected 2: the same every time",
      error_of([&] { repeat(zero(middle_)); }));
  repeat();
  repeat(zero(middle_));  // nobody calls it
  EXPECT_THAT(error_of([&] { repeat(zero(middle_), CapturedGraph::Check::always); }),
              HasSubstr("3 piece(s), another number; expected 2"));
  graph_ = nullptr;
  repeat(zero(middle_));
  EXPECT_THAT(error_of([&] { repeat([&] { device_->kernels().poison(compute(), middle_); }); }),
              HasSubstr("3 piece(s), of other names; expected 3"));
}

TEST_F(Repeats, AreCalledEveryTimeWhereTheyAreChecked) {
  for (int i = 0; i < 5; ++i) repeat([] {}, CapturedGraph::Check::always);
  EXPECT_EQ(5, bodies_);
  EXPECT_EQ(5, sum());
  EXPECT_EQ(4, emulated::calls("cudaGraphLaunch"));
}

void* take_memory() {
  void* data = nullptr;
  check(cudaMalloc(&data, 256), "take memory");
  return data;
}

TEST_F(Repeats, ThatCannotBeCapturedAreSubmittedAsTheyAreAndSayWhy) {
  const auto grow = [&] { compute().submit("grow", [] { cudaFree(take_memory()); }); };
  for (int i = 0; i < 4; ++i) repeat(grow);
  EXPECT_THAT(std::string(graph_->refusal()),
              AllOf(HasSubstr("take memory"), HasSubstr("cudaErrorStreamCaptureUnsupported")));
  EXPECT_EQ(0, graph_->nodes());
  EXPECT_EQ(5, bodies_);  // once in vain
  EXPECT_EQ(4, sum());

  graph_ = nullptr;
  repeat();
  emulated::fail_next("cudaStreamBeginCapture", cudaErrorStreamCaptureUnsupported);
  repeat();
  EXPECT_THAT(std::string(graph_->refusal()),
              HasSubstr("CUDA cannot capture it: cudaErrorStreamCaptureUnsupported"));
  for (const char* call : {"cudaGraphInstantiate", "cudaGraphUpload"}) {
    graph_ = nullptr;
    repeat();
    emulated::fail_next(call, cudaErrorMemoryAllocation);
    repeat();
    EXPECT_EQ("the driver has no memory left for a graph", graph_->refusal());
    repeat();
  }
  EXPECT_EQ(4 + 2 + 6, sum());
}

TEST_F(Repeats, ThatAreKeptAndThenCannotBeCapturedDiffer) {
  const auto grow = [&] { compute().submit("grow", [] { cudaFree(take_memory()); }); };
  repeat();
  repeat();
  EXPECT_THAT(error_of([&] { repeat(grow, CapturedGraph::Check::always); }),
              AllOf(HasSubstr("\"a pass\" is repeated, but submits what cannot be"),
                    HasSubstr("take memory")));
}

TEST_F(Repeats, ErrorsOfABodyEndItAndNotTheStream) {
  const auto stop = [] { fail("no more"); };
  EXPECT_EQ("no more", error_of([&] { repeat(stop); }));
  repeat();
  EXPECT_EQ("no more", error_of([&] { repeat(stop); }));  // captured
  repeat();
  repeat();
  EXPECT_EQ(4, sum());  // the first had submitted its work
}

TEST_F(Repeats, ErrorsOfTheirWorkEndTheStream) {
  const auto ends = [&](const char* call, int times) {
    start({});
    for (int i = 0; i < times; ++i) repeat();
    emulated::fail_next(call, cudaErrorInvalidConfiguration);
    EXPECT_THAT(error_of([&] { repeat(); }), HasSubstr("cudaErrorInvalidConfiguration")) << call;
    EXPECT_THAT(error_of([&] { repeat(); }), HasSubstr("cudaErrorInvalidConfiguration")) << call;
    graph_ = nullptr;
  };
  ends("cudaLaunchKernel", 0);
  ends("cudaLaunchKernel", 1);  // captured
  ends("cudaGraphLaunch", 2);
}

TEST_F(Repeats, BelongToOneKindOfDevice) {
  class Other final : public CapturedGraph {
    std::int64_t nodes() const override { return 0; }
    std::string_view refusal() const override { return {}; }
  };
  graph_ = std::make_unique<Other>();
  EXPECT_EQ("cuda: work that another device keeps cannot be repeated", error_of([&] { repeat(); }));
}

}  // namespace
}  // namespace zero::cuda
