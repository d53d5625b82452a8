// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/random_hex.h"
#include "collectives/backends.h"
#include "collectives/mpi/pmix_server.h"

namespace zero::mpi {
namespace {

/// A name that no other job on these hosts has: MPI names its shared memory by it.
std::string job_name(const StoreRank& self) {
  constexpr const char* kKey = "mpi/job";
  if (self.rank == 0) self.store.set(kKey, "zero-" + random_hex(16));
  return self.store.get(kKey, self.timeout);
}

/// The life of the forked process. It dies with the rank's process, and ignores signals that a
/// terminal or a launcher sends to all.
[[noreturn]] void be_server(pid_t rank, int socket) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
    std::signal(signal, SIG_IGN);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != rank) ::_exit(1);
  // Not the rank's sockets: its peers see by them that it is gone.
  constexpr int kFirst = STDERR_FILENO + 1;
  if (socket != kFirst) ::dup2(socket, kFirst);
  close_descriptors(kFirst + 1);
  JobSocket to_rank{Descriptor(kFirst)};
  const auto layout = to_rank.receive();
  if (!layout) ::_exit(0);
  serve_pmix(JobLayout::from(*layout), std::move(to_rank));
}

}  // namespace

class JobServer {
 public:
  JobServer() {
    std::array<int, 2> sockets{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
      error_ = "cannot make a pair of sockets: " + std::generic_category().message(errno);
      return;
    }
    socket_ = JobSocket(Descriptor(sockets[0]));
    const Descriptor other(sockets[1]);
    const pid_t rank = ::getpid();
    process_ = ::fork();
    if (process_ == 0) be_server(rank, other.get());
    if (process_ < 0) {
      error_ = "cannot start the server of MPI's ranks on this host: " +
               std::generic_category().message(errno);
    }
  }
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;
  ~JobServer() {
    if (process_ < 0) return;
    socket_.hang_up();
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  /// Why it does not run; empty if it does.
  const std::string& error() const { return error_; }
  JobSocket& socket() { return socket_; }
  /// It goes on until this process ends.
  void leave() {
    socket_.leave_open();
    process_ = -1;
  }

 private:
  std::string error_{};
  pid_t process_ = -1;
  JobSocket socket_{Descriptor(-1)};
};

namespace {

/// This rank's part in a job of MPI that its ranks have formed: the first rank of each host has a
/// server, and carries what the servers tell each other through the store.
class Job {
 public:
  Job(const StoreRank& self, const std::vector<std::string>& hosts,
      std::shared_ptr<JobServer> server)
      : store_(self.store), ranks_(hosts), exceptions_(std::uncaught_exceptions()) {
    const std::string name = job_name(self);
    if (ranks_.led_by(self.rank) >= 0) {
      server_ = std::move(server);
      start_server({.name = name, .ranks = ranks_, .host = ranks_.host_of(self.rank)});
    }
    const std::string mine = store_.get(variables_key(self.rank), self.timeout);
    const std::string error = mine.starts_with('!') ? mine.substr(1) : "";
    for (int rank = 0; const std::string& each : all_gather_texts(self, "mpi/server", error)) {
      ZERO_CHECK(
          each.empty(),
          "[rank {}] the ranks cannot form a job of MPI: {}; start them with mpirun, or with "
          "srun --mpi=pmix",
          rank, each);
      ++rank;
    }
    set_variables(mine.substr(1));
    if (server_) courier_ = std::thread([this, host = ranks_.host_of(self.rank)] { carry(host); });
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// A rank that unwinds leaves the server to the abort of MPI that follows.
  ~Job() {
    if (!server_) return;
    const bool unwinds = std::uncaught_exceptions() > exceptions_;
    ended_ = true;
    unwinds ? server_->socket().stop_receiving() : server_->socket().hang_up();
    if (courier_.joinable()) courier_.join();
    if (unwinds) server_->leave();
  }

 private:
  static std::string variables_key(int rank) { return fmt::format("mpi/variables/{}", rank); }

  /// Gives the host's ranks their variables or, all the same, the reason why there are none.
  void start_server(const JobLayout& layout) {
    JobSocket& socket = server_->socket();
    const bool runs = server_->error().empty() && socket.send(layout.text());
    const std::string none =
        server_->error().empty() ? "the server of MPI's ranks ended" : server_->error();
    for (const int rank : layout.ranks.ranks_of(layout.host)) {
      const auto variables = runs ? socket.receive() : std::nullopt;
      store_.set(variables_key(rank), variables.value_or("!" + none));
    }
  }

  static void set_variables(const std::string& lines) {
    std::istringstream text(lines);
    for (std::string line; std::getline(text, line);) {
      const std::size_t equals = line.find('=');
      ::setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 1);
    }
    // Open MPI 4 believes in a PMIx server only if it knows the launcher: JSM serves as this does.
    ::setenv("JSM_JSRUN_PORT", "0", 0);
  }

  /// The courier's thread: brings what the hosts' servers have for each other.
  void carry(int host) {
    JobSocket& socket = server_->socket();
    for (int fence = 0;; ++fence) {
      const auto mine = socket.receive();
      if (!mine) return;
      socket.send(exchange(fence, host, *mine));
    }
  }

  std::string exchange(int fence, int of_host, const std::string& mine) {
    constexpr std::chrono::milliseconds kBetweenLooks{1000};
    std::vector<std::string> keys;
    for (int host = 0; host < ranks_.hosts(); ++host) {
      keys.push_back(fmt::format("mpi/fence/{}/{}", fence, host));
    }
    try {
      store_.set(keys[static_cast<std::size_t>(of_host)], mine);
      while (!ended_) {
        try {
          std::string all = "+";
          for (const std::string& each : store_.get_all(keys, kBetweenLooks)) all += each;
          return all;
        } catch (const Error&) {
          if (store_.lost()) break;
        }
      }
    } catch (const Error&) {  // the store is gone
    }
    return "!";
  }

  Store& store_;
  RanksOfHosts ranks_;
  int exceptions_;
  std::shared_ptr<JobServer> server_{};  // the first rank's of a host
  std::atomic<bool> ended_ = false;
  std::thread courier_;
};

}  // namespace

bool can_form_job() { return true; }

std::shared_ptr<JobServer> start_job_server() { return std::make_shared<JobServer>(); }

std::shared_ptr<void> form_job(const StoreRank& self, const std::vector<std::string>& hosts,
                               std::shared_ptr<JobServer> server) {
  return std::make_shared<Job>(self, hosts, std::move(server));
}

}  // namespace zero::mpi
