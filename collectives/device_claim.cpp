// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_claim.h"

#include "base/error.h"

namespace zero {

DeviceClaim::DeviceClaim(const Communicator& communicator, const Device& device,
                         std::string_view who) {
  if (!device.has_memory()) return;
  CollectiveBackend::Claims& claims = communicator.implementation()->claims();
  ZERO_CHECK(claims.count == 0 || claims.device == &device,
             "[rank {}] {}: the communicator serves another device (\"{}\") as long as what was "
             "made with it lives, and this device (\"{}\") would mix its collectives with those; "
             "give both the same device, or this one a communicator of its own: split(0, rank())",
             communicator.rank(), who, claims.device->name(), device.name());
  backend_ = communicator.implementation();
  claims.device = &device;
  ++claims.count;
}

DeviceClaim::~DeviceClaim() {
  if (backend_) --backend_->claims().count;
}

}  // namespace zero
