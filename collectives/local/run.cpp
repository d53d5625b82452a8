// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <numeric>
#include <thread>

#include "collectives/backends.h"
#include "collectives/local/backend.h"

namespace zero::local {
namespace {

// The threads of one run and the first error among them.
class Ranks {
 public:
  Ranks(int ranks, const std::function<void(Communicator&)>& body) : body_(body) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    job_ = std::make_shared<Job>(ranks);
    group_ = Group::make(job_, std::move(members));
  }

  void run_all() {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < group_->size(); ++rank) {
      try {
        threads.emplace_back([this, rank] { run_rank(rank); });
      } catch (const std::exception& error) {
        failed(rank, fmt::format("its thread did not start: {}", error.what()));
      }
    }
    threads.clear();  // joins
    if (first_) std::rethrow_exception(first_);
  }

 private:
  void run_rank(int rank) {
    try {
      Communicator communicator(std::make_shared<LocalBackend>(group_, rank));
      body_(communicator);
      job_->leave(rank, "its body returned");
    } catch (const std::exception& error) {
      failed(rank, fmt::format("it threw \"{}\"", error.what()));
    } catch (...) {
      failed(rank, "it threw");
    }
  }

  void failed(int rank, const std::string& how) {
    {
      const std::scoped_lock lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
    job_->leave(rank, how);
    job_->close_stores(fmt::format("rank {} left: {}", rank, how));
  }

  const std::function<void(Communicator&)>& body_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<Group> group_;
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

void run(int ranks, const std::function<void(Communicator&)>& body) {
  ZERO_CHECK(ranks >= 1, "local::run with {} ranks; expected at least 1", ranks);
  Ranks(ranks, body).run_all();
}

}  // namespace zero::local
