// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/fake_nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "collectives/nccl/check.h"
#include "tests/nccl/fake_operation.h"

// The type that nccl.h leaves open: one rank of a clique.
struct ncclComm {
  std::shared_ptr<zero::test::fake_nccl::Clique> clique;
  int rank = 0;
  int world_rank = 0;
  ncclResult_t error = ncclSuccess;
  std::deque<zero::test::fake_nccl::OperationPtr> pending;
  bool splitting = false;
  std::string last_error;
};

namespace zero::test::fake_nccl {

/// Ranks that have met, and what they have posted.
struct Clique {
  struct Wish {
    int color = 0;
    int key = 0;
    ncclComm_t* part = nullptr;
    ncclComm_t comm = nullptr;
  };
  int number = 0;
  int size = 0;
  int joined = 0;
  bool dead = false;  // a rank was aborted: nothing moves any more
  std::map<int, std::deque<OperationPtr>> collectives;  // by rank
  std::map<std::pair<int, int>, std::deque<OperationPtr>> sends;
  std::map<std::pair<int, int>, std::deque<OperationPtr>> receives;  // by (sender, receiver)
  std::vector<Wish> wishes;                                          // of a split
};

namespace {

struct State {
  std::mutex mutex;
  int ids = 0;
  int made = 0;  // cliques
  int alive = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::map<int, int> breaks;  // calls left
  std::set<int> blocked;      // ranks whose aborts never return
  std::set<const void*> blocks;
  std::map<int, std::vector<Call>> posted;
};

State& state() {
  static State one;
  return one;
}

thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, OperationPtr>> group;

void move_pairs(Clique& clique) {
  for (auto& [pair, sends] : clique.sends) {
    auto& receives = clique.receives[pair];
    while (!sends.empty() && !receives.empty()) {
      meet({sends.front(), receives.front()});
      sends.pop_front();
      receives.pop_front();
    }
  }
}

void run_collectives(Clique& clique) {
  const auto ready = [&] {
    if (static_cast<int>(clique.collectives.size()) < clique.size) return false;
    for (const auto& [rank, queue] : clique.collectives) {
      if (queue.empty()) return false;
    }
    return true;
  };
  while (ready()) {
    std::vector<OperationPtr> ranks;
    for (auto& [rank, queue] : clique.collectives) {
      ranks.push_back(queue.front());
      queue.pop_front();
    }
    meet(std::move(ranks));
  }
}

void run_split(Clique& clique) {
  if (static_cast<int>(clique.wishes.size()) < clique.size) return;
  std::map<int, std::vector<Clique::Wish>> parts;
  for (const Clique::Wish& wish : clique.wishes) parts[wish.color].push_back(wish);
  for (auto& [color, wishes] : parts) {
    std::ranges::sort(
        wishes, {}, [](const Clique::Wish& wish) { return std::pair(wish.key, wish.comm->rank); });
    auto part = std::make_shared<Clique>();
    part->number = ++state().made;
    part->size = part->joined = static_cast<int>(wishes.size());
    int rank = 0;
    for (const Clique::Wish& wish : wishes) {
      wish.comm->splitting = false;
      if (color == NCCL_SPLIT_NOCOLOR) continue;
      ++state().alive;
      *wish.part = new ncclComm{.clique = part,
                                .rank = rank++,
                                .world_rank = wish.comm->world_rank,
                                .pending = {},
                                .last_error = {}};
    }
  }
  clique.wishes.clear();
}

// As far as what the ranks have posted allows.
void progress(Clique& clique) {
  if (clique.dead) return;
  move_pairs(clique);
  run_collectives(clique);
  run_split(clique);
}

// What has met goes to the streams of the thread that posted it: all that is read, then all that is
// written.
void put_on_streams(const ncclComm& comm) {
  if (comm.clique->dead) return;
  for (const auto& step : {give, take}) {
    for (const OperationPtr& operation : comm.pending) {
      const bool own = operation->thread == std::this_thread::get_id();
      if (own && !operation->done) step(operation);
    }
  }
}

void forget_first(ncclComm& comm) {
  comm.pending.front()->rendezvous = nullptr;  // which holds the operation
  comm.pending.pop_front();
}

ncclResult_t state_of(ncclComm_t comm) {
  if (comm->error != ncclSuccess) return comm->error;
  progress(*comm->clique);
  put_on_streams(*comm);
  while (!comm->pending.empty() && comm->pending.front()->done) {
    if (comm->pending.front()->wrong) comm->error = ncclInternalError;
    forget_first(*comm);
  }
  if (comm->error != ncclSuccess) return comm->error;
  const bool all_came = comm->clique->joined == comm->clique->size;
  return all_came && comm->pending.empty() && !comm->splitting ? ncclSuccess : ncclInProgress;
}

void enqueue(ncclComm_t comm, const OperationPtr& operation) {
  state().posted[comm->world_rank].push_back({comm->clique->number, operation->text()});
  comm->pending.push_back(operation);
  Clique& clique = *comm->clique;
  const int peer = operation->peer;
  if (operation->kind == Kind::send) {
    clique.sends[{comm->rank, peer}].push_back(operation);
  } else if (operation->kind == Kind::receive) {
    clique.receives[{peer, comm->rank}].push_back(operation);
  } else {
    clique.collectives[comm->rank].push_back(operation);
  }
  const auto left = state().breaks.find(comm->world_rank);
  if (left == state().breaks.end() || --left->second > 0) return;
  comm->error = ncclRemoteError;
  comm->last_error = "a link of the fake broke";
}

ncclResult_t flush() {
  const std::scoped_lock lock(state().mutex);
  for (const auto& [comm, operation] : group) {
    if (!comm->pending.empty() && comm->pending.front()->done) state_of(comm);
  }
  for (const auto& [comm, operation] : group) enqueue(comm, operation);
  const bool empty = group.empty();
  group.clear();
  return empty ? ncclSuccess : ncclInProgress;
}

/// A call about memory, which must be there.
ncclResult_t note(ncclComm_t comm, const std::string& text, const void* memory) {
  const std::scoped_lock lock(state().mutex);
  state().posted[comm->world_rank].push_back(
      {comm->clique->number,
       state().blocks.contains(memory) ? text : text + " of memory that is gone"});
  return ncclSuccess;
}

ncclResult_t leave(ncclComm_t comm, bool abort) {
  const std::scoped_lock lock(state().mutex);
  if (abort) comm->clique->dead = true;
  while (!comm->pending.empty()) forget_first(*comm);
  --state().alive;
  delete comm;
  return ncclSuccess;
}

bool blocks(int rank) {
  const std::scoped_lock lock(state().mutex);
  return state().blocked.contains(rank);
}

}  // namespace

Rank& rank() {
  thread_local Rank one;
  return one;
}

void break_rank(int rank, int calls) {
  const std::scoped_lock lock(state().mutex);
  state().breaks[rank] = calls;
}

void block_aborts(int rank) {
  const std::scoped_lock lock(state().mutex);
  state().blocked.insert(rank);
}

std::vector<Call> calls(int rank) {
  const std::scoped_lock lock(state().mutex);
  return state().posted[rank];
}

std::vector<std::string> posted(int rank) {
  std::vector<std::string> texts;
  for (const Call& call : calls(rank)) texts.push_back(call.text);
  return texts;
}

int alive() {
  const std::scoped_lock lock(state().mutex);
  return state().alive;
}

bool allocated(const void* memory) {
  const std::scoped_lock lock(state().mutex);
  return state().blocks.contains(memory);
}

void reset() {
  const std::scoped_lock lock(state().mutex);
  state().posted.clear();
  state().breaks.clear();
  state().blocked.clear();
}

ncclResult_t post(ncclComm_t comm, Operation operation) {
  {
    const std::scoped_lock lock(state().mutex);
    // What the library calls wrong use: a call while another one is still on its way.
    if (state_of(comm) != ncclSuccess && comm->error == ncclSuccess) return ncclInvalidUsage;
  }
  operation.rank = comm->rank;
  operation.thread = std::this_thread::get_id();
  group.emplace_back(comm, std::make_shared<Operation>(operation));
  return depth > 0 ? ncclSuccess : flush();
}

}  // namespace zero::test::fake_nccl

using namespace zero::test::fake_nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = rank().version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInternalError:
      return "internal error";
    default:
      return "error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm == nullptr ? nullptr : comm->last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::scoped_lock lock(state().mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "clique %d", ++state().ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  zero::test::fake_nccl::rank().cta_policy = config->CTAPolicy;
  const std::scoped_lock lock(state().mutex);
  auto& clique = state().cliques[id.internal];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->number = ++state().made;
  }
  clique->size = size;
  ++clique->joined;
  ++state().alive;
  *comm = new ncclComm{
      .clique = clique, .rank = rank, .world_rank = rank, .pending = {}, .last_error = {}};
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  const std::scoped_lock lock(state().mutex);
  comm->splitting = true;
  comm->clique->wishes.push_back({color, key, part, comm});
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const std::scoped_lock lock(state().mutex);
  *result = state_of(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return leave(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  while (blocks(comm->world_rank)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return leave(comm, true);
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  const std::scoped_lock lock(state().mutex);
  ++state().alive;
  *memory = allocate(bytes);
  state().blocks.insert(*memory);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  const std::scoped_lock lock(state().mutex);
  --state().alive;
  state().blocks.erase(memory);
  release(memory);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  *handle = memory;
  return note(comm, fmt::format("Register {}", bytes), memory);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return note(comm, "Deregister", handle);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return note(comm, "WindowDeregister", window);
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return --depth > 0 ? ncclSuccess : flush(); }
