// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "launch/rendezvous/host_addresses.h"

namespace zero {

/// Answers who connects with a text, at a free port of this host, while it lives.
class PortAnswer {
 public:
  explicit PortAnswer(std::string text);
  ~PortAnswer();
  PortAnswer(const PortAnswer&) = delete;
  PortAnswer& operator=(const PortAnswer&) = delete;

  int port() const { return port_; }

 private:
  void answer();

  std::string text_;
  Descriptor socket_;
  int port_ = 0;
  std::thread thread_;
};

/// Connects to a PortAnswer; "" if it answers with `text` within `patience`, else the reason.
std::string why_no_answer(const HostAddress& address, int port, const std::string& text,
                          std::chrono::milliseconds patience);

}  // namespace zero
