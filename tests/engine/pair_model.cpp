// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/pair_model.h"

#include <cmath>

#include "tests/engine/elements.h"

namespace zero::toy {
namespace {

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kWidth = 10;
constexpr std::int64_t kHidden = 27;
constexpr std::int64_t kGates = 2;

ParameterSpec sliced(ParameterSpec whole, int dimension,
                     const std::vector<TensorSlice::Range>& ranges) {
  whole.slice = TensorSlice{whole.shape, dimension, ranges};
  whole.shape = whole.slice->local_shape();
  return whole;
}

}  // namespace

Pair::Pair(Engine& engine) : engine_(engine) {
  const int rank = engine.mesh().mesh().index(Axis::tensor);
  const int ranks = engine.mesh().mesh().size(Axis::tensor);
  const TensorSlice::Range hidden = even_range(kHidden, rank, ranks);
  hidden_ = hidden.count;
  std::vector<TensorSlice::Range> gates;
  for (int gate = 0; gate < kGates; ++gate) {  // rank r holds gate r % 2; one rank holds both
    if (ranks == 1 || rank % kGates == gate) gates.push_back({gate, 1, rank / 2});
  }
  for (const TensorSlice::Range& gate : gates) firsts_.push_back(gate.copy == 0);
  scale_ = engine.add_unit("scale", {{"weight", {kWidth}, init::ones()}});
  for (int i = 0; i < 2; ++i) {
    layers_.push_back(
        engine.add_unit(fmt::format("layer.{}", i),
                        {sliced({"up", {kWidth, kHidden}, init::normal(0.3F)}, 1, {hidden}),
                         sliced({"bias", {kHidden}, init::normal(0.1F)}, 0, {hidden}),
                         sliced({"down", {kHidden, kWidth}, init::normal(0.2F)}, 0, {hidden}),
                         sliced({"gates", {kGates, kWidth}, init::normal(0.1F)}, 0, gates),
                         {"shift", {kWidth}, init::normal(0.1F)}}));
  }
  const auto elements = at(kRows * kWidth);
  for (std::vector<float>* values : {&x_, &first_, &target_, &sum_}) values->resize(elements);
  inputs_.assign(layers_.size(), std::vector<float>(elements));
  activated_.assign(layers_.size(), std::vector<float>(at(kRows * hidden_)));
}

Pair::~Pair() {
  try {
    engine_.device().compute().synchronize();
    engine_.device().communication().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream has dropped the work
  }
}

std::vector<Use> Pair::order() const {
  std::vector<Use> uses{{scale_, Phase::forward}};
  for (const UnitId layer : layers_) uses.push_back({layer, Phase::forward});
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
    uses.push_back({*layer, Phase::backward});
  uses.push_back({scale_, Phase::backward});
  return uses;
}

void Pair::load(std::int64_t batch) {
  engine_.device().compute().submit("data", [this, batch] {
    auto state = static_cast<std::uint64_t>(batch) * 0x9e3779b97f4a7c15ULL + 977;
    const auto next = [&state] {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return static_cast<float>(state >> 40) / 16777216.0F - 0.5F;
    };
    for (float& value : first_) value = next();
    for (float& value : target_) value = next();
  });
}

void Pair::sum_over_tensor_axis() {
  Stream& compute = engine_.device().compute();
  Stream& communication = engine_.device().communication();
  communication.wait(compute.record());
  engine_.mesh()
      .axis(Axis::tensor)
      .all_reduce(View::of(std::span(sum_)), ReduceOp::sum, communication, {"pair", {}});
  compute.wait(communication.record());
}

void Pair::scale_forward() {
  const ParameterLease lease = engine_.forward(scale_);
  engine_.device().compute().submit("scale", [this, weight = lease["weight"]] {
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] = first_[i] * get(weight, static_cast<std::int64_t>(i) % kWidth);
  });
}

void Pair::layer_forward(std::size_t layer) {
  Stream& compute = engine_.device().compute();
  const ParameterLease lease = engine_.forward(layers_[layer]);
  compute.submit("up, down", [this, layer, up = lease["up"], bias = lease["bias"],
                              down = lease["down"], gates = lease["gates"]] {
    inputs_[layer] = x_;
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t h = 0; h < hidden_; ++h) {
        float before = get(bias, h);
        for (std::int64_t i = 0; i < kWidth; ++i)
          before += x_[at(r * kWidth + i)] * get(up, i * hidden_ + h);
        const float activated = std::tanh(before);
        activated_[layer][at(r * hidden_ + h)] = activated;
        for (std::int64_t o = 0; o < kWidth; ++o)
          sum_[at(r * kWidth + o)] += activated * get(down, h * kWidth + o);
      }
      for (std::int64_t i = 0; i < gates.count(); ++i) {
        if (firsts_[at(i / kWidth)])
          sum_[at(r * kWidth + i % kWidth)] += x_[at(r * kWidth + i % kWidth)] * get(gates, i);
      }
    }
  });
  sum_over_tensor_axis();
  compute.submit("add", [this, shift = lease["shift"]] {
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] += sum_[i] + get(shift, static_cast<std::int64_t>(i) % kWidth);
  });
}

void Pair::loss_backward(float scale, double* loss) {
  engine_.device().compute().submit("loss", [this, scale, loss] {
    *loss = 0;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const float difference = x_[i] - target_[i];
      *loss += 0.5 * static_cast<double>(scale) * static_cast<double>(difference * difference);
      x_[i] = scale * difference;
    }
  });
}

void Pair::layer_backward(std::size_t layer) {
  Stream& compute = engine_.device().compute();
  const GradientLease lease = engine_.backward(layers_[layer]);
  compute.submit("down, up backward",
                 [this, layer, up = lease.parameter("up"), down = lease.parameter("down"),
                  gates = lease.parameter("gates"), dup = lease.gradient("up"),
                  dbias = lease.gradient("bias"), ddown = lease.gradient("down"),
                  dgates = lease.gradient("gates"), dshift = lease.gradient("shift")] {
                   for (const View& gradient : {dup, dbias, ddown, dgates, dshift}) {
                     for (std::int64_t i = 0; i < gradient.count(); ++i) put(gradient, i, 0.0F);
                   }
                   std::fill(sum_.begin(), sum_.end(), 0.0F);
                   const std::vector<float>& input = inputs_[layer];
                   for (std::int64_t r = 0; r < kRows; ++r) {
                     for (std::int64_t h = 0; h < hidden_; ++h) {
                       const float activated = activated_[layer][at(r * hidden_ + h)];
                       float back = 0;
                       for (std::int64_t o = 0; o < kWidth; ++o) {
                         back += x_[at(r * kWidth + o)] * get(down, h * kWidth + o);
                         add(ddown, h * kWidth + o, activated * x_[at(r * kWidth + o)]);
                       }
                       back *= 1.0F - activated * activated;
                       add(dbias, h, back);
                       for (std::int64_t i = 0; i < kWidth; ++i) {
                         add(dup, i * hidden_ + h, back * input[at(r * kWidth + i)]);
                         sum_[at(r * kWidth + i)] += back * get(up, i * hidden_ + h);
                       }
                     }
                     for (std::int64_t o = 0; o < kWidth; ++o)
                       add(dshift, o, x_[at(r * kWidth + o)]);
                     for (std::int64_t i = 0; i < gates.count(); ++i) {
                       const std::size_t place = at(r * kWidth + i % kWidth);
                       add(dgates, i, input[place] * x_[place]);  // the same on every holder
                       if (firsts_[at(i / kWidth)]) sum_[place] += x_[place] * get(gates, i);
                     }
                   }
                 });
  sum_over_tensor_axis();
  compute.submit("add", [this] {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] += sum_[i];
  });
}

void Pair::scale_backward() {
  const GradientLease lease = engine_.backward(scale_);
  engine_.device().compute().submit("scale backward", [this, gradient = lease.gradient("weight")] {
    for (std::int64_t i = 0; i < kWidth; ++i) {
      float sum = 0;
      for (std::int64_t r = 0; r < kRows; ++r)
        sum += x_[at(r * kWidth + i)] * first_[at(r * kWidth + i)];
      put(gradient, i, sum);
    }
  });
}

void Pair::train(std::int64_t batch, float scale, double* loss) {
  load(batch);
  scale_forward();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) layer_forward(layer);
  loss_backward(scale, loss);
  for (std::size_t layer = layers_.size(); layer-- > 0;) layer_backward(layer);
  scale_backward();
}

}  // namespace zero::toy
