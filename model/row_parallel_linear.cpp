// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/row_parallel_linear.h"

#include <utility>

#include "model/tensor_specs.h"

namespace zero {

RowParallelLinear::RowParallelLinear(TensorParallel& tensor, Options options)
    : tensor_(&tensor),
      shape_(options.whole),
      inputs_(options.whole.in),
      at_(options.at),
      name_(std::move(options.name)),
      ranges_(std::move(options.inputs)) {
  if (ranges_.empty()) ranges_ = {even_share(name_ + " inputs", inputs_, tensor)};
  shape_.in = total_of(ranges_);
}

ParameterSpec RowParallelLinear::weight(std::string name, Init init) const {
  const bool in_first = shape_.layout == WeightLayout::in_out;
  return sliced_spec(
      {.name = std::move(name),
       .shape = in_first ? std::vector{inputs_, shape_.out} : std::vector{shape_.out, inputs_},
       .init = init},
      {in_first ? 0 : 1, ranges_}, tensor_->ranks());
}

ParameterSpec RowParallelLinear::bias(std::string name) const {
  return {.name = std::move(name), .shape = {shape_.out}};
}

LinearShape RowParallelLinear::rows(std::int64_t count) const {
  LinearShape part = shape_;
  part.rows = count;
  return part;
}

void RowParallelLinear::prepare(Ops& ops) const {
  ops.prepare(shape_, Ops::LinearUse::training);
  for (const std::int64_t count : tensor_->cut().chunk_rows()) {
    ops.prepare(rows(count), Ops::LinearUse::training);
  }
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
  ops.linear_forward(rows(part.count), TensorParallel::rows_of(o.x, part, shape_.in),
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
        rows(chunk.count), TensorParallel::rows_of(o.gathered, chunk, shape_.out),
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
