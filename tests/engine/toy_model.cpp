// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/toy_model.h"

#include <cmath>

#include "tests/engine/elements.h"

namespace zero::toy {

Model::Model(Engine& engine, const Shape& shape) : engine_(engine), shape_(shape) {
  const std::int64_t c = shape.width;
  embedding_ = engine.add_unit("embedding", {{"tokens", {shape.vocabulary, c}, init::normal(0.5F)},
                                             {"positions", {shape.rows, c}, init::normal(0.5F)}});
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    layers_.push_back(engine.add_unit(
        fmt::format("layer.{}", i),
        {{"weight", {c, c}, init::normal(0.3F)}, {"bias", {c}, init::normal(0.1F)}}));
  }
  scale_ = engine.add_unit("scale", {{"weight", {c}, init::ones()}});
  tokens_.resize(at(shape.rows + 1));
  inputs_.assign(at(shape.layers + 1), std::vector<float>(at(shape.rows * c)));
  activated_.assign(at(shape.layers), std::vector<float>(at(shape.rows * c)));
  x_.resize(at(shape.rows * c));
}

Model::~Model() {
  try {
    engine_.device().compute().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream has dropped the work
  }
}

std::vector<Use> Model::order() const {
  std::vector<Use> uses{{embedding_, Phase::forward}};
  for (const UnitId layer : layers_) uses.push_back({layer, Phase::forward});
  uses.push_back({scale_, Phase::forward});
  uses.push_back({embedding_, Phase::both});
  uses.push_back({scale_, Phase::backward});
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
    uses.push_back({*layer, Phase::backward});
  uses.push_back({embedding_, Phase::backward, false});
  return uses;
}

void Model::load(std::int64_t batch) {
  engine_.device().compute().submit("tokens", [this, batch] {
    auto state = static_cast<std::uint64_t>(batch) * 0x9e3779b97f4a7c15ULL + 12345;
    for (std::int64_t& token : tokens_) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      token =
          static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(shape_.vocabulary));
    }
  });
}

void Model::embed(const ParameterLease& lease) {
  engine_.device().compute().submit(
      "embed", [this, tokens = lease["tokens"], positions = lease["positions"]] {
        const std::int64_t c = shape_.width;
        for (std::int64_t r = 0; r < shape_.rows; ++r) {
          for (std::int64_t i = 0; i < c; ++i)
            x_[at(r * c + i)] = get(tokens, tokens_[at(r)] * c + i) + get(positions, r * c + i);
        }
      });
}

void Model::layer_forward(std::size_t layer, const ParameterLease& lease) {
  engine_.device().compute().submit(
      "layer", [this, layer, weight = lease["weight"], bias = lease["bias"]] {
        const std::int64_t c = shape_.width;
        inputs_[layer] = x_;
        for (std::int64_t r = 0; r < shape_.rows; ++r) {
          for (std::int64_t o = 0; o < c; ++o) {
            float sum = get(bias, o);
            for (std::int64_t i = 0; i < c; ++i)
              sum += inputs_[layer][at(r * c + i)] * get(weight, i * c + o);
            activated_[layer][at(r * c + o)] = std::tanh(sum);
            x_[at(r * c + o)] += activated_[layer][at(r * c + o)];
          }
        }
      });
}

void Model::norm_forward(const ParameterLease& lease) {
  engine_.device().compute().submit("scale", [this, weight = lease["weight"]] {
    inputs_.back() = x_;
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] *= get(weight, static_cast<std::int64_t>(i) % shape_.width);
  });
}

/// Logits, loss, and with a gradient view the gradients of both; x_ becomes its gradient.
void Model::head(View embedding, View gradient, float scale, double* loss) {
  engine_.device().compute().submit("head", [this, embedding, gradient, scale, loss] {
    const std::int64_t c = shape_.width;
    *loss = 0;
    for (std::int64_t i = 0; i < gradient.count(); ++i) put(gradient, i, 0.0F);
    for (std::int64_t r = 0; r < shape_.rows; ++r) {
      std::vector<float> p(at(shape_.vocabulary));
      float total = 0;
      for (std::int64_t v = 0; v < shape_.vocabulary; ++v) {
        float logit = 0;
        for (std::int64_t i = 0; i < c; ++i) logit += x_[at(r * c + i)] * get(embedding, v * c + i);
        p[at(v)] = std::exp(std::min(logit, 30.0F));
        total += p[at(v)];
      }
      const std::int64_t target = tokens_[at(r + 1)];
      *loss -= static_cast<double>(std::log(p[at(target)] / total)) * static_cast<double>(scale);
      if (gradient.empty()) continue;
      std::vector<float> dx(at(c), 0.0F);
      for (std::int64_t v = 0; v < shape_.vocabulary; ++v) {
        const float d = scale * (p[at(v)] / total - (v == target ? 1.0F : 0.0F));
        for (std::int64_t i = 0; i < c; ++i) {
          add(gradient, v * c + i, d * x_[at(r * c + i)]);
          dx[at(i)] += d * get(embedding, v * c + i);
        }
      }
      std::copy(dx.begin(), dx.end(), x_.begin() + r * c);
    }
  });
}

void Model::train(std::int64_t batch, float scale, double* loss) {
  Stream& compute = engine_.device().compute();
  const std::int64_t c = shape_.width;
  load(batch);
  embed(engine_.forward(embedding_));
  for (std::size_t i = 0; i < layers_.size(); ++i) layer_forward(i, engine_.forward(layers_[i]));
  norm_forward(engine_.forward(scale_));
  {
    const GradientLease lease = engine_.backward(embedding_);
    head(lease.parameter("tokens"), lease.gradient("tokens"), scale, loss);
  }
  {
    const GradientLease lease = engine_.backward(scale_);
    compute.submit("scale backward", [this, c, weight = lease.parameter("weight"),
                                      gradient = lease.gradient("weight")] {
      for (std::int64_t i = 0; i < c; ++i) {
        float sum = 0;
        for (std::int64_t r = 0; r < shape_.rows; ++r) {
          sum += x_[at(r * c + i)] * inputs_.back()[at(r * c + i)];
          x_[at(r * c + i)] *= get(weight, i);
        }
        put(gradient, i, sum);
      }
    });
  }
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    const GradientLease lease = engine_.backward(layers_[layer]);
    compute.submit("layer backward", [this, c, layer, weight = lease.parameter("weight"),
                                      dw = lease.gradient("weight"), db = lease.gradient("bias")] {
      std::vector<float> pre(x_.size());
      for (std::size_t i = 0; i < x_.size(); ++i)
        pre[i] = x_[i] * (1.0F - activated_[layer][i] * activated_[layer][i]);
      for (std::int64_t o = 0; o < c; ++o) {
        float bias = 0;
        for (std::int64_t r = 0; r < shape_.rows; ++r) bias += pre[at(r * c + o)];
        put(db, o, bias);
        for (std::int64_t i = 0; i < c; ++i) {
          float sum = 0;
          for (std::int64_t r = 0; r < shape_.rows; ++r) {
            sum += inputs_[layer][at(r * c + i)] * pre[at(r * c + o)];
            x_[at(r * c + i)] += pre[at(r * c + o)] * get(weight, i * c + o);
          }
          put(dw, i * c + o, sum);
        }
      }
    });
  }
  const GradientLease lease = engine_.backward(embedding_);
  compute.submit("embed backward", [this, c, tokens = lease.gradient("tokens"),
                                    positions = lease.gradient("positions")] {
    for (std::int64_t r = 0; r < shape_.rows; ++r) {
      for (std::int64_t i = 0; i < c; ++i) {
        add(tokens, tokens_[at(r)] * c + i, x_[at(r * c + i)]);
        add(positions, r * c + i, x_[at(r * c + i)]);
      }
    }
  });
}

void Model::evaluate(std::int64_t batch, double* loss) {
  load(batch);
  embed(engine_.forward(embedding_));
  for (std::size_t i = 0; i < layers_.size(); ++i) layer_forward(i, engine_.forward(layers_[i]));
  norm_forward(engine_.forward(scale_));
  head(engine_.forward(embedding_)["tokens"], {}, 1.0F, loss);
}

}  // namespace zero::toy
