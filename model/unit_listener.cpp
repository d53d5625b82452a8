// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/unit_listener.h"

namespace zero {

void UnitListeners::add(UnitListener& listener) {
  all_.push_back(&listener);
  if (listener.hears_operations()) hearing_.push_back(&listener);
}

void UnitListeners::unit(std::string_view name, Phase phase) {
  for (UnitListener* each : all_) each->unit(name, phase);
}

void UnitListeners::tensor(std::string_view name, std::int64_t layer, const View& values) {
  for (UnitListener* each : all_) each->tensor(name, layer, values);
}

void UnitListeners::begin(const OpCost& cost) {
  for (UnitListener* each : hearing_) each->begin(cost);
}

void UnitListeners::end() noexcept {
  for (UnitListener* each : hearing_) each->end();
}

void UnitListeners::touches(const View& values, Access access) {
  for (UnitListener* each : hearing_) each->touches(values, access);
}

void UnitListeners::copies(const View& from, const View& to) {
  for (UnitListener* each : hearing_) each->copies(from, to);
}

void UnitListeners::moves(const View& from, const View& to) {
  for (UnitListener* each : hearing_) each->moves(from, to);
}

}  // namespace zero
