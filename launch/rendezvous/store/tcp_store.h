// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/store.h"
#include "launch/rendezvous/store/endpoint.h"

namespace zero {

/// The Store of ranks that share only a network: rank 0 serves keys and values on a thread of its
/// own; every rank, including rank 0, is a client. For bootstrap and agreement, not for data. With
/// a secret the ranks use TCP and prove the secret to each other; without one they must be
/// processes of one user on one host, as verified by the kernel. Messages are encrypted (StoreTls).
class TcpStore final : public Store {
 public:
  using Options = StoreOptions;

  /// Rank 0 listens; the others retry until it answers. Throws zero::Error naming rank and address
  /// if that does not happen in time, if rank 0 was started for another world or job, if one of the
  /// two does not know the other's secret, or if there is no secret and rank 0 is on another host.
  /// Without a secret, a job whose launcher reports one host uses only the port of the address.
  explicit TcpStore(const Options& options);
  /// Says goodbye. Rank 0 waits a few seconds for the others' goodbyes. A rank that unwinds neither
  /// waits nor says goodbye, so the others see it as lost.
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  int port() const;

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                   std::chrono::milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override;
  std::optional<std::string> lost() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zero
