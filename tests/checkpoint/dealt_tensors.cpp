// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "dealt_tensors.h"

#include <algorithm>

#include "checkpoint/convert.h"
#include "collectives/backends.h"
#include "scratch.h"

namespace zero::testing {

DealtTensors::DealtTensors(const std::vector<Spec>& specs, int rank, int world, std::int64_t run) {
  std::int64_t dealt = 0;
  for (const Spec& spec : specs) {
    LogicalTensor tensor;
    tensor.name = spec.name;
    tensor.shape = spec.shape;
    const std::int64_t count = element_count(spec.shape).value();
    for (std::int64_t begin = 0; begin < count; begin += run) {
      if (dealt++ % world != rank) continue;
      const std::int64_t length = std::min(run, count - begin);
      memory_.emplace_back(static_cast<std::size_t>(length * size_of(spec.dtype)));
      tensor.parts.push_back({begin, View(memory_.back().data(), length, spec.dtype, nullptr)});
    }
    tensors_.push_back(std::move(tensor));
  }
}

template <typename Body>
void DealtTensors::each(const Body& body) const {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    for (const LogicalTensor::Part& part : tensors_[t].parts) {
      for (std::int64_t i = 0; i < part.values.count(); ++i) {
        body(t, part.begin + i, part.values.slice(i, 1));
      }
    }
  }
}

void DealtTensors::fill(const std::function<float(std::size_t, std::int64_t)>& value) {
  each([&](std::size_t t, std::int64_t element, const View& at) {
    const float wanted = value(t, element);
    decode(FileType::f32, std::as_bytes(std::span(&wanted, 1)), at);
  });
}

bool DealtTensors::holds(const std::function<float(std::size_t, std::int64_t)>& value) const {
  bool equal = true;
  each([&](std::size_t t, std::int64_t element, const View& at) {
    float found = 0;
    decode(file_type_of(at.dtype()),
           {static_cast<const std::byte*>(at.data()), static_cast<std::size_t>(at.bytes())},
           View::of(std::span(&found, 1)));
    equal = equal && found == value(t, element);
  });
  return equal;
}

float some_value(std::size_t tensor, std::int64_t element) {
  return static_cast<float>(tensor) * 16.0F + static_cast<float>(element) - 20.0F;
}

std::vector<std::string> errors_of(int world, const std::function<void(const Ranks&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  local::run(world, [&](Communicator& communicator) {
    const auto device = cpu::open();
    errors[static_cast<std::size_t>(communicator.rank())] = error_of([&] {
      HostPieces pieces(*device);
      body({communicator, *device, pieces});
    });
  });
  return errors;
}

}  // namespace zero::testing
