// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/host_clock.h"

#include <algorithm>

namespace zero {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kLooks = 5;  // the quickest counts

}  // namespace

HostClock::HostClock(Stream& stream) : begin_(compare(stream)) {}

void HostClock::stop(Stream& stream) {
  end_ = compare(stream);
  seconds_ = seconds_to(end_.mark).value();
}

HostClock::Time HostClock::at(double seconds) const {
  const Seconds host = end_.time - begin_.time;
  const double rate = seconds_ > 0 ? host.count() / seconds_ : 1;
  return begin_.time + std::chrono::duration_cast<Time::duration>(Seconds(seconds * rate));
}

double HostClock::error_seconds() const { return std::max(begin_.error, end_.error); }

HostClock::Comparison HostClock::compare(Stream& stream) {
  stream.synchronize();
  Comparison best;
  for (int look = 0; look < kLooks; ++look) {
    const Time before = std::chrono::steady_clock::now();
    const Mark mark = stream.mark();
    stream.synchronize();
    const Time after = std::chrono::steady_clock::now();
    const double error = Seconds(after - before).count() / 2;
    if (look == 0 || error < best.error) best = {mark, before + (after - before) / 2, error};
  }
  return best;
}

}  // namespace zero
