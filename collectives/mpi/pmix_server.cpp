// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/pmix_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pmix.h>
#include <pmix_server.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <memory>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace zero::mpi {
namespace {

void check_pmix(pmix_status_t status, std::string_view call) {
  ZERO_CHECK(status == PMIX_SUCCESS, "{}: {}", call, ::PMIx_Error_string(status));
}

/// Runs `start`, a call of PMIx that ends with a callback, and waits for that.
template <typename Start>
void wait_for(std::string_view call, const Start& start) {
  std::promise<pmix_status_t> ended;
  const auto on_end = [](pmix_status_t status, void* promise) {
    static_cast<std::promise<pmix_status_t>*>(promise)->set_value(status);
  };
  const pmix_status_t started = start(on_end, &ended);
  if (started == PMIX_OPERATION_SUCCEEDED) return;
  check_pmix(started, call);
  check_pmix(ended.get_future().get(), call);
}

/// What PMIx is told about a job, a host or a rank.
class Facts {
 public:
  Facts() = default;
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;
  ~Facts() {
    for (pmix_info_t& fact : facts_) PMIX_INFO_DESTRUCT(&fact);
  }

  void add(const char* key, const void* value, pmix_data_type_t type) {
    pmix_info_t& fact = facts_.emplace_back();
    PMIX_INFO_CONSTRUCT(&fact);
    check_pmix(::PMIx_Info_load(&fact, key, value, type), key);
  }
  void add(const char* key, const std::string& text) { add(key, text.c_str(), PMIX_STRING); }
  void add(const char* key, std::uint32_t number) { add(key, &number, PMIX_UINT32); }
  void add(const char* key, std::uint16_t number) { add(key, &number, PMIX_UINT16); }
  void add_rank(const char* key, int rank) {
    const auto number = static_cast<pmix_rank_t>(rank);
    add(key, &number, PMIX_PROC_RANK);
  }
  /// Copies the facts of one rank. By hand: PMIx_Info_load() takes no arrays.
  void add_of_rank(const Facts& rank) {
    pmix_data_array_t* array = nullptr;
    PMIX_DATA_ARRAY_CREATE(array, rank.facts_.size(), PMIX_INFO);
    auto* const copies = static_cast<pmix_info_t*>(array->array);
    for (std::size_t i = 0; i < rank.facts_.size(); ++i) {
      check_pmix(::PMIx_Info_xfer(&copies[i], &rank.facts_[i]), "PMIx_Info_xfer");
    }
    pmix_info_t& fact = facts_.emplace_back();
    PMIX_INFO_CONSTRUCT(&fact);
    PMIX_LOAD_KEY(fact.key, PMIX_PROC_DATA);
    fact.value.type = PMIX_DATA_ARRAY;
    fact.value.data.darray = array;
  }

  pmix_info_t* data() { return facts_.data(); }
  std::size_t size() const { return facts_.size(); }

 private:
  std::vector<pmix_info_t> facts_;
};

/// A fence of the job's ranks that waits for the other hosts.
struct Fence {
  std::string mine;
  pmix_modex_cbfunc_t end = nullptr;
  void* cookie = nullptr;
};

// PMIx calls back on its own thread and passes no pointer of ours. So the pipe that carries fences
// to the main thread is global; this process is one server.
std::array<int, 2> fences{-1, -1};
constexpr ssize_t kFenceBytes = sizeof(void*);  // of a fence in the pipe: its address

pmix_status_t fence(const pmix_proc_t ranks[], std::size_t /*count*/,
                    const pmix_info_t /*wishes*/[], std::size_t /*wish_count*/, char* data,
                    std::size_t bytes, pmix_modex_cbfunc_t end, void* cookie) {
  auto waiting =
      std::make_unique<Fence>(Fence{data == nullptr ? "" : std::string(data, bytes), end, cookie});
  std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): PMIx hands it over
  if (ranks[0].rank != PMIX_RANK_WILDCARD) return PMIX_ERR_NOT_SUPPORTED;
  Fence* const sent = waiting.get();
  if (::write(fences[1], static_cast<const void*>(&sent), kFenceBytes) != kFenceBytes) {
    return PMIX_ERROR;
  }
  static_cast<void>(waiting.release());
  return PMIX_SUCCESS;
}

pmix_status_t come_or_go(const pmix_proc_t* /*rank*/, void* /*object*/, pmix_op_cbfunc_t end,
                         void* cookie) {
  if (end != nullptr) end(PMIX_SUCCESS, cookie);
  return PMIX_SUCCESS;
}

/// The rank itself then ends with the status, and its launcher ends the others.
pmix_status_t abort_rank(const pmix_proc_t* /*rank*/, void* /*object*/, int /*status*/,
                         const char /*message*/[], pmix_proc_t /*ranks*/[], std::size_t /*count*/,
                         pmix_op_cbfunc_t end, void* cookie) {
  if (end != nullptr) end(PMIX_SUCCESS, cookie);
  return PMIX_SUCCESS;
}

void start(const JobLayout& layout) {
  ZERO_CHECK(::pipe(fences.data()) == 0, "cannot make a pipe: {}",
             std::generic_category().message(errno));
  ::setenv("PMIX_MCA_gds", "hash", 1);  // facts in messages: no files
  static pmix_server_module_t module{};
  module.client_connected = come_or_go;
  module.client_finalized = come_or_go;
  module.abort = abort_rank;
  module.fence_nb = fence;
  Facts facts;
  facts.add(PMIX_HOSTNAME, layout.ranks.name(layout.host));
  check_pmix(::PMIx_server_init(&module, facts.data(), facts.size()), "PMIx_server_init");
}

/// The lists of hosts and of their ranks as PMIx packs them.
void add_map(Facts& facts, const JobLayout& layout) {
  std::vector<std::string> ranks;
  for (int host = 0; host < layout.ranks.hosts(); ++host) {
    ranks.push_back(fmt::format("{}", fmt::join(layout.ranks.ranks_of(host), ",")));
  }
  const auto add = [&](const char* key, auto* pack, std::string_view call,
                       const std::string& list) {
    char* packed = nullptr;
    check_pmix(pack(list.c_str(), &packed), call);
    const std::unique_ptr<char, decltype(&std::free)> owner(packed, &std::free);
    facts.add(key, packed, PMIX_STRING);
  };
  add(PMIX_NODE_MAP, ::PMIx_generate_regex, "PMIx_generate_regex",
      fmt::format("{}", fmt::join(layout.ranks.names(), ",")));
  add(PMIX_PROC_MAP, ::PMIx_generate_ppn, "PMIx_generate_ppn",
      fmt::format("{}", fmt::join(ranks, ";")));
}

void describe(const JobLayout& layout) {
  const RanksOfHosts& ranks = layout.ranks;
  const std::vector<int>& here = ranks.ranks_of(layout.host);
  const auto world = static_cast<std::uint32_t>(ranks.ranks());
  Facts facts;
  for (const char* key : {PMIX_UNIV_SIZE, PMIX_JOB_SIZE, PMIX_MAX_PROCS}) facts.add(key, world);
  for (const char* key : {PMIX_LOCAL_SIZE, PMIX_NODE_SIZE}) {
    facts.add(key, static_cast<std::uint32_t>(here.size()));
  }
  facts.add(PMIX_NUM_NODES, static_cast<std::uint32_t>(ranks.hosts()));
  add_map(facts, layout);
  facts.add(PMIX_LOCAL_PEERS, fmt::format("{}", fmt::join(here, ",")));
  facts.add_rank(PMIX_LOCALLDR, here.front());
  std::vector<std::uint16_t> taken(ranks.names().size(), 0);
  for (int rank = 0; rank < ranks.ranks(); ++rank) {
    const int host = ranks.host_of(rank);
    const std::uint16_t local = taken[static_cast<std::size_t>(host)]++;
    Facts of_rank;
    for (const char* key : {PMIX_RANK, PMIX_GLOBAL_RANK}) of_rank.add_rank(key, rank);
    for (const char* key : {PMIX_LOCAL_RANK, PMIX_NODE_RANK}) of_rank.add(key, local);
    of_rank.add(PMIX_APPNUM, std::uint32_t{0});
    of_rank.add(PMIX_NODEID, static_cast<std::uint32_t>(host));
    of_rank.add(PMIX_HOSTNAME, ranks.name(host));
    facts.add_of_rank(of_rank);
  }
  pmix_nspace_t name{};
  PMIX_LOAD_NSPACE(name, layout.name.c_str());
  wait_for("PMIx_server_register_nspace", [&](pmix_op_cbfunc_t end, void* cookie) {
    return ::PMIx_server_register_nspace(name, static_cast<int>(here.size()), facts.data(),
                                         facts.size(), end, cookie);
  });
}

/// The variables of one rank, a line each.
std::string variables(const JobLayout& layout, int rank) {
  pmix_proc_t proc{};
  PMIX_LOAD_PROCID(&proc, layout.name.c_str(), static_cast<pmix_rank_t>(rank));
  wait_for("PMIx_server_register_client", [&](pmix_op_cbfunc_t end, void* cookie) {
    return ::PMIx_server_register_client(&proc, ::geteuid(), ::getegid(), nullptr, end, cookie);
  });
  char** list = nullptr;
  check_pmix(::PMIx_server_setup_fork(&proc, &list), "PMIx_server_setup_fork");
  std::string lines;
  for (char** each = list; each != nullptr && *each != nullptr; ++each) {
    lines += fmt::format("{}\n", *each);
  }
  PMIX_ARGV_FREE(list);
  return lines;
}

/// Waits for the next fence; null once the socket's other end is gone, or if none can be heard of.
std::unique_ptr<Fence> next_fence(const JobSocket& socket) {
  std::array<pollfd, 2> events{pollfd{fences[0], POLLIN, 0},
                               pollfd{socket.descriptor(), POLLIN, 0}};
  while (::poll(events.data(), events.size(), -1) < 0) {
    if (errno != EINTR) return nullptr;  // MPI's ranks then lose their server, and say so
  }
  Fence* waiting = nullptr;
  if ((events[0].revents & POLLIN) == 0 ||
      ::read(fences[0], static_cast<void*>(&waiting), kFenceBytes) != kFenceBytes) {
    return nullptr;
  }
  return std::unique_ptr<Fence>(waiting);
}

void serve(const JobLayout& layout, JobSocket& socket) {
  for (const int rank : layout.ranks.ranks_of(layout.host)) {
    socket.send(fmt::format("+{}", variables(layout, rank)));
  }
  while (const auto waiting = next_fence(socket)) {
    if (!socket.send(waiting->mine)) return;
    const auto all = socket.receive();
    if (!all) return;
    const bool met = all->starts_with('+');
    auto given = std::make_unique<std::string>(all->substr(1));
    waiting->end(
        met ? PMIX_SUCCESS : PMIX_ERR_LOST_CONNECTION_TO_SERVER, given->data(), given->size(),
        waiting->cookie, [](void* text) { delete static_cast<std::string*>(text); }, given.get());
    static_cast<void>(given.release());  // PMIx calls the function that frees it
  }
}

}  // namespace

std::string JobLayout::text() const {
  std::string lines = fmt::format("{}\n{}\n", name, host);
  for (int rank = 0; rank < ranks.ranks(); ++rank) {
    lines += ranks.name(ranks.host_of(rank)) + "\n";
  }
  return lines;
}

JobLayout JobLayout::from(const std::string& text) {
  std::istringstream lines(text);
  std::string name;
  std::string host;
  std::getline(lines, name);
  std::getline(lines, host);
  std::vector<std::string> host_of_rank;
  for (std::string each; std::getline(lines, each);) host_of_rank.push_back(each);
  return {.name = name, .ranks = RanksOfHosts(host_of_rank), .host = std::stoi(host)};
}

void serve_pmix(const JobLayout& layout, JobSocket socket) noexcept {
  try {
    start(layout);
    describe(layout);
    serve(layout, socket);
  } catch (const std::exception& error) {
    const std::string reason = fmt::format("!{}", error.what());
    for ([[maybe_unused]] const int rank : layout.ranks.ranks_of(layout.host)) socket.send(reason);
  }
  ::_exit(0);  // PMIx's own end would wait for ranks that are gone
}

}  // namespace zero::mpi
