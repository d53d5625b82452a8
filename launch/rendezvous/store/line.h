// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/greeting.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {

/// One rank's connection to the server of its store, both ends of which have proven the job's
/// secret, or to be of one user; one request at a time. Throws the system's error
/// (boost::system::system_error) if nobody answers in time, or no longer, and zero::Error if
/// somebody else answers. Not thread-safe.
class StoreLine {
 public:
  using Clock = std::chrono::steady_clock;
  using Message = store_wire::Message;

  struct Options {
    std::string host;
    int port = 0;
    store_wire::Caller caller{};
    std::optional<JobSecret> secret{};
  };

  StoreLine(const Options& options, Clock::time_point deadline);
  ~StoreLine();
  StoreLine(const StoreLine&) = delete;
  StoreLine& operator=(const StoreLine&) = delete;

  Message ask(const Message& request, Clock::time_point deadline);

 private:
  class Wire;

  void connect_with_secret(const Options& options, Clock::time_point deadline);
  void greet(const Options& options, Clock::time_point deadline);

  std::unique_ptr<Wire> wire_;
  std::optional<store_wire::Session> session_;
};

}  // namespace zero
