// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Two waits of a process that lose patience together ask the other ranks once: a second question
// would forget the answers to the first, and be answered twice.
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "collectives/backends.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/inquiries.h"
#include "collectives/mpi/runtime.h"
#include "tests/collectives/body.h"
#include "tests/collectives/mpi_program.h"

namespace zero::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kQuestion = 0;  // the tag
constexpr auto kTogether = 100ms;

/// Pairs of questions until one was together: what the other rank must have heard of them.
void ask_in_pairs(mpi::Inquiries& inquiries) {
  int pairs = 0;
  int slow = 0;  // of which the second may have been a question of its own
  while (pairs == slow) {
    const auto begin = Clock::now();
    inquiries.ask();
    inquiries.ask();
    if (Clock::now() - begin >= kTogether) ++slow;
    ++pairs;
    std::this_thread::sleep_for(2 * kTogether);
  }
  inquiries.ask();  // another one, since time has passed
  mpi::send_and_forget(inquiries.handle(), 1, kQuestion,
                       fmt::format("{} {}", pairs + 1, pairs + 1 + slow));
}

void count_questions(MPI_Comm job) {
  int heard = 0;
  for (;;) {
    const std::optional<std::string> text = mpi::take_message(job, 0, kQuestion);
    if (!text) continue;
    if (text->find(' ') == std::string::npos) {
      expect(*text == std::to_string(++heard), "question " + *text);
      continue;
    }
    const int least = std::stoi(*text);
    const int most = std::stoi(text->substr(text->find(' ')));
    return expect(least <= heard && heard <= most,
                  fmt::format("{} questions, expected {}", heard, *text));
  }
}

void run(int* argc, char*** argv) {
  const auto runtime = mpi::Runtime::start(argc, argv);
  mpi::Inquiries inquiries(mpi::Comm::copy_of(MPI_COMM_WORLD), mpi::RankProcesses({}, {}, 0));
  int rank = 0;
  mpi::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  if (rank == 0) {
    ask_in_pairs(inquiries);
  } else {
    count_questions(inquiries.handle());
  }
  mpi::check_mpi(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) { return zero::test::mpi_program(argc, argv, zero::test::run); }
