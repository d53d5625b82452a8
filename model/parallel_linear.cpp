// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/parallel_linear.h"

#include <utility>

#include "architecture/decoder_shape.h"
#include "base/error.h"

namespace zero {
namespace {

LinearShape with_rows(LinearShape shape, std::int64_t rows) {
  shape.rows = rows;
  return shape;
}

/// For all rows, and for those of each chunk.
void prepare_chunks(Ops& ops, const LinearShape& shape, const RowCut& cut) {
  ops.prepare(shape, Ops::LinearUse::training);
  for (const std::int64_t rows : cut.chunk_rows()) {
    ops.prepare(with_rows(shape, rows), Ops::LinearUse::training);
  }
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(TensorParallel& tensor, Options options)
    : tensor_(&tensor),
      shape_(options.whole),
      outputs_(options.whole.out),
      at_(options.at),
      name_(std::move(options.name)),
      ranges_(std::move(options.outputs)),
      shared_(options.shared) {
  if (ranges_.empty()) ranges_ = {tensor.even_share(name_ + " outputs", outputs_)};
  shape_.out = count_of(ranges_);
  ZERO_CHECK(shared_.holders == nullptr || shape_.layout == WeightLayout::out_in,
             "[rank {}] {}: outputs that several tensor ranks hold (fewer heads of keys and values "
             "than ranks) need a weight of layout (out, in), not (in, out)",
             tensor.rank(), name_);
}

ParameterSpec ColumnParallelLinear::weight(std::string name, Init init) const {
  const bool in_first = shape_.layout == WeightLayout::in_out;
  return tensor_->slice(
      {.name = std::move(name),
       .shape = in_first ? std::vector{shape_.in, outputs_} : std::vector{outputs_, shape_.in},
       .init = init},
      in_first ? 1 : 0, ranges_);
}

ParameterSpec ColumnParallelLinear::bias(std::string name) const {
  return tensor_->slice({.name = std::move(name), .shape = {outputs_}}, 0, ranges_);
}

void ColumnParallelLinear::prepare(Ops& ops) const {
  prepare_chunks(ops, shape_, tensor_->cut());
  tensor_->prepare(shape_.in, shape_.dtype);
  if (shared_.holders != nullptr) {
    tensor_->prepare(*shared_.holders, shared_.outputs.count * shape_.in, shape_.weight_gradient);
  }
}

Event ColumnParallelLinear::sum_shared(View gradient, std::int64_t width) const {
  if (shared_.holders == nullptr) return {};
  return tensor_->sum_over(*shared_.holders,
                           TensorParallel::rows_of(gradient, shared_.outputs, width), name_);
}

void ColumnParallelLinear::forward(Ops& ops, const Lease& unit, const Forward& o) const {
  if (!tensor_->sequence_parallel()) {
    forward(ops, unit, o, {0, shape_.rows});
    return;
  }
  std::vector<Event> gathered;
  for (int k = 0; k < tensor_->chunks(); ++k) gathered.push_back(gather(o, k));
  for (int k = 0; k < tensor_->chunks(); ++k) {
    tensor_->wait(gathered[static_cast<std::size_t>(k)]);
    forward(ops, unit, o, tensor_->cut().chunk(k));
  }
}

Event ColumnParallelLinear::gather(const Forward& o, int chunk) const {
  return tensor_->gather(chunk, {o.gathered, o.x, shape_.in}, name_);
}

void ColumnParallelLinear::forward(Ops& ops, const Lease& unit, const Forward& o,
                                   const Slices::Range& range) const {
  const View x = TensorParallel::rows_of(o.gathered, range, shape_.in);
  const View y = TensorParallel::rows_of(o.y, range, shape_.out);
  const View bias = has_bias() ? unit.at(at_.bias) : View();
  if (o.gelu.empty()) {
    ops.linear_forward(with_rows(shape_, range.count), x, unit.at(at_.weight), bias, y);
    return;
  }
  ops.linear_gelu_forward(with_rows(shape_, range.count),
                          {.x = x,
                           .weight = unit.at(at_.weight),
                           .bias = bias,
                           .z = y,
                           .y = TensorParallel::rows_of(o.gelu, range, shape_.out)});
}

void ColumnParallelLinear::backward(Ops& ops, const GradientLease& unit, const Backward& o) const {
  const TensorParallel::Rows x{o.gathered, o.x, shape_.in};
  const TensorParallel::Rows dx{o.partial, o.dx, shape_.in};
  Event gathered;
  for (int k = 0; k < tensor_->chunks(); ++k) gathered = tensor_->gather(k, x, name_);
  Event summed;
  for (int k = 0; k < tensor_->chunks(); ++k) {
    const Slices::Range chunk = tensor_->cut().chunk(k);
    ops.linear_backward_input(
        with_rows(shape_, chunk.count), TensorParallel::rows_of(o.dy, chunk, shape_.out),
        unit.parameter(at_.weight), TensorParallel::rows_of(o.partial, chunk, shape_.in));
    summed = tensor_->sum(k, dx, name_);
  }
  tensor_->wait(gathered);
  const View dweight = unit.gradient(at_.weight);
  if (o.dbias.empty()) {
    ops.linear_backward_weight(shape_, o.gathered, o.dy, dweight, Write::overwrite);
  } else {
    ops.linear_backward_parameters(shape_, o.gathered, o.dy, dweight, o.dbias);
    tensor_->wait(sum_shared(o.dbias, 1));
  }
  tensor_->wait(sum_shared(dweight, shape_.in));
  tensor_->wait(summed);
}

TrafficCounter ColumnParallelLinear::traffic() const {
  TrafficCounter sent = tensor_->sum_traffic(shape_.in, shape_.dtype);
  for (int i = 0; i < 2; ++i) sent.add(tensor_->gather_traffic(shape_.in, shape_.dtype));
  if (shared_.holders == nullptr) return sent;
  const auto add = [&](std::int64_t width) {
    sent.add(TensorParallel::all_reduce_traffic(
        shared_.outputs.count * width * size_of(shape_.weight_gradient), shared_.holders->size()));
  };
  add(shape_.in);
  if (has_bias()) add(1);
  return sent;
}

RowParallelLinear::RowParallelLinear(TensorParallel& tensor, Options options)
    : tensor_(&tensor),
      shape_(options.whole),
      inputs_(options.whole.in),
      at_(options.at),
      name_(std::move(options.name)),
      ranges_(std::move(options.inputs)) {
  if (ranges_.empty()) ranges_ = {tensor.even_share(name_ + " inputs", inputs_)};
  shape_.in = count_of(ranges_);
}

ParameterSpec RowParallelLinear::weight(std::string name, Init init) const {
  const bool in_first = shape_.layout == WeightLayout::in_out;
  return tensor_->slice(
      {.name = std::move(name),
       .shape = in_first ? std::vector{inputs_, shape_.out} : std::vector{shape_.out, inputs_},
       .init = init},
      in_first ? 0 : 1, ranges_);
}

ParameterSpec RowParallelLinear::bias(std::string name) const {
  return {.name = std::move(name), .shape = {shape_.out}};
}

void RowParallelLinear::prepare(Ops& ops) const {
  prepare_chunks(ops, shape_, tensor_->cut());
  tensor_->prepare(shape_.out, shape_.dtype);
}

void RowParallelLinear::forward(Ops& ops, const Lease& unit, const Forward& o) const {
  Event summed;
  for (int k = 0; k < tensor_->chunks(); ++k) summed = forward(ops, unit, o, k);
  tensor_->wait(summed);
}

Event RowParallelLinear::forward(Ops& ops, const Lease& unit, const Forward& o, int chunk) const {
  const bool biased = at_.bias != kAbsent && tensor_->rank() == 0;
  const Slices::Range part = tensor_->cut().chunk(chunk);
  ops.linear_forward(with_rows(shape_, part.count), TensorParallel::rows_of(o.x, part, shape_.in),
                     unit.at(at_.weight), biased ? unit.at(at_.bias) : View(),
                     TensorParallel::rows_of(o.partial, part, shape_.out));
  return tensor_->sum(chunk, {o.partial, o.y, shape_.out}, name_);
}

void RowParallelLinear::backward_input(Ops& ops, const GradientLease& unit,
                                       const BackwardInput& o) const {
  if (!tensor_->sequence_parallel()) {
    ops.linear_backward_input(shape_, o.gathered, unit.parameter(at_.weight), o.dx);
    return;
  }
  const TensorParallel::Rows dy{o.gathered, o.dy, shape_.out};
  std::vector<Event> gathered;
  for (int k = 0; k < tensor_->chunks(); ++k) gathered.push_back(tensor_->gather(k, dy, name_));
  for (int k = 0; k < tensor_->chunks(); ++k) {
    const Slices::Range chunk = tensor_->cut().chunk(k);
    tensor_->wait(gathered[static_cast<std::size_t>(k)]);
    ops.linear_backward_input(
        with_rows(shape_, chunk.count), TensorParallel::rows_of(o.gathered, chunk, shape_.out),
        unit.parameter(at_.weight), TensorParallel::rows_of(o.dx, chunk, shape_.in));
  }
}

// GELU of all rows, not of each chunk: dbias sums over all rows.
void RowParallelLinear::backward_input(Ops& ops, const GradientLease& unit, const BackwardInput& o,
                                       const ThroughGelu& gelu) const {
  backward_input(ops, unit, o);
  ops.gelu_backward({shape_.rows, shape_.in, shape_.dtype}, gelu.z, o.dx, gelu.x, gelu.dbias);
}

void RowParallelLinear::backward_parameters(Ops& ops, const GradientLease& unit, View x,
                                            View dy) const {
  const View dweight = unit.gradient(at_.weight);
  if (at_.bias == kAbsent) {
    ops.linear_backward_weight(shape_, x, dy, dweight, Write::overwrite);
  } else {
    ops.linear_backward_parameters(shape_, x, dy, dweight, unit.gradient(at_.bias));
  }
}

TrafficCounter RowParallelLinear::traffic() const {
  TrafficCounter sent = tensor_->sum_traffic(shape_.out, shape_.dtype);
  sent.add(tensor_->gather_traffic(shape_.out, shape_.dtype));
  return sent;
}

}  // namespace zero
