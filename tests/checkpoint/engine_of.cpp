// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/engine_of.h"

#include "collectives/backends.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {

std::vector<std::string> errors_of(int world, const Tensors& tensors,
                                   const std::function<void(Engine&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  local::run(world, [&](Communicator& communicator) {
    const auto device = cpu::open();
    errors[static_cast<std::size_t>(communicator.rank())] = error_of([&] {
      EngineOptions options;
      options.compute = tensors.compute;
      options.limits.persistence_threshold = 0;
      Engine engine(communicator, *device, options);
      std::vector<ParameterSpec> specs = tensors.specs;
      for (ParameterSpec& spec : specs) spec.full_name = spec.name;
      engine.add_unit("unit", specs);
      engine.seal();
      body(engine);
    });
  });
  return errors;
}

void fill(Engine& engine, const Tensors& tensors, const ElementValue& value) {
  for (std::size_t t = 0; t < tensors.specs.size(); ++t) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < tensors.specs[t].count(); ++i) values.push_back(value(t, i));
    engine.states().write(tensors.specs[t].name, StateKind::parameter, View::of(std::span(values)));
  }
}

bool holds(Engine& engine, const Tensors& tensors, const ElementValue& value) {
  bool equal = true;
  for (std::size_t t = 0; t < tensors.specs.size(); ++t) {
    std::vector<float> values(static_cast<std::size_t>(tensors.specs[t].count()));
    engine.states().read(tensors.specs[t].name, StateKind::parameter, View::of(std::span(values)));
    for (std::size_t i = 0; i < values.size(); ++i)
      equal = equal && values[i] == value(t, static_cast<std::int64_t>(i));
  }
  return equal;
}

float some_value(std::size_t tensor, std::int64_t element) {
  return static_cast<float>(tensor % 7) * 16.0F + static_cast<float>(element % 100) - 20.0F;
}

}  // namespace zero::testing
