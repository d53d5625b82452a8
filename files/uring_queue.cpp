// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/uring_queue.h"

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "files/disk_calls.h"
#include "files/posix_file.h"

namespace zero::files {
namespace {

constexpr std::size_t kLargestBuffer = std::size_t{1} << 30;  // the kernel's limit for one
constexpr std::chrono::milliseconds kPause{1};                // before asking the kernel again

/// What an error of the set-up comes from, for people; may be empty.
const char* advice_on(int error) {
  if (error == ENOMEM) return " (ulimit -l bounds it before Linux 5.12)";
  if (error == EPERM) return " (by a container's seccomp profile or kernel.io_uring_disabled)";
  return "";
}

// Held while a ring is opened or closed. A new ring may get the addresses of one that another
// thread has closed: the kernel orders the two, and this lock shows ThreadSanitizer the same order.
std::mutex opening;

/// Owns the ring that a process shares with the kernel.
class Ring {
 public:
  explicit Ring(int depth) {
    const std::lock_guard lock(opening);
    error_ = -io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
  }
  ~Ring() {
    const std::lock_guard lock(opening);
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  /// 0, or the error number of the set-up.
  int error() const { return error_; }
  /// Whether the kernel's io_uring has reads and writes, which Linux 5.6 added.
  bool reads_and_writes() {
    const std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(
        io_uring_get_probe_ring(&ring_), &io_uring_free_probe);
    constexpr std::array kCalls{IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED,
                                IORING_OP_WRITE_FIXED};
    return probe && std::ranges::all_of(kCalls, [&](int call) {
             return io_uring_opcode_supported(probe.get(), call) != 0;
           });
  }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  int error_ = 0;
};

class Queue final : public TransferQueue {
 public:
  Queue(std::unique_ptr<Ring> ring, const QueueOptions& options)
      : ring_(std::move(ring)),
        one_by_one_(options.one_by_one),
        most_pauses_(options.patience / kPause),
        slots_(static_cast<std::size_t>(options.depth)) {}
  ~Queue() override {
    while (in_kernel_ > 0 || !prepared_.empty()) take_one();
    // A closed ring gives its memory back some time later: meanwhile it counts as locked.
    if (!registered_.empty()) io_uring_unregister_buffers(ring_->get());
  }

  /// Returns 0 or the system's error number.
  int register_memory(std::span<std::byte> memory);

  Ticket write(OutputFile& file, std::int64_t offset, std::span<const std::byte> bytes) override {
    return submit(Transfer::write(posix_file(file), offset, bytes, Transfer::Mode::direct));
  }
  Ticket read(InputFile& file, std::int64_t offset, std::span<std::byte> out) override {
    return submit(Transfer::read(posix_file(file), offset, out, Transfer::Mode::direct));
  }
  /// Gives the kernel the prepared entries, or ends their transfers on this thread if the kernel
  /// refuses for good.
  void flush() override;
  void wait(Ticket ticket) override;

 private:
  struct Slot {
    Ticket ticket = 0;
    std::optional<Transfer> transfer;  // none: the slot is free
  };

  Ticket submit(Transfer transfer);
  /// Prepares the slot's next call, or ends its transfer.
  void go_on(Slot& slot);
  void prepare(io_uring_sqe* entry, const Transfer::Call& call) const;
  /// Frees the slot; makes what calls are left on this thread.
  void end(Slot& slot);
  /// Flushes, blocks until the kernel has ended a call, and goes on with its transfer.
  void take_one();
  /// The next call that has ended; null if the kernel tells of none: then `error` says why.
  io_uring_cqe* next_end(int& error);
  /// Fails all transfers that the kernel has, which may still use their memory.
  void lose(int error);

  std::unique_ptr<Ring> ring_;
  bool one_by_one_;
  std::int64_t most_pauses_;
  std::vector<Slot> slots_;
  std::vector<Slot*> prepared_;  // not yet given to the kernel, which takes the first ones first
  std::span<std::byte> registered_;
  Ticket last_ = 0;
  int in_kernel_ = 0;
  bool refused_ = false;  // by the kernel: the ring takes no more entries
  std::unordered_map<Ticket, std::string> failures_;  // not yet waited for
};

int Queue::register_memory(std::span<std::byte> memory) {
  std::vector<iovec> buffers;
  for (std::size_t begin = 0; begin < memory.size(); begin += kLargestBuffer) {
    const auto part = memory.subspan(begin, std::min(kLargestBuffer, memory.size() - begin));
    buffers.push_back({part.data(), part.size()});
  }
  const int result = io_uring_register_buffers(ring_->get(), buffers.data(),
                                               static_cast<unsigned>(buffers.size()));
  if (result == 0) registered_ = memory;
  return -result;
}

TransferQueue::Ticket Queue::submit(Transfer transfer) {
  const auto is_free = [](const Slot& slot) { return !slot.transfer; };
  auto slot = std::ranges::find_if(slots_, is_free);
  for (; slot == slots_.end(); slot = std::ranges::find_if(slots_, is_free)) take_one();
  *slot = {++last_, std::move(transfer)};
  go_on(*slot);
  return last_;
}

void Queue::wait(Ticket ticket) {
  ZERO_CHECK(ticket > 0 && ticket <= last_, "files: no transfer has ticket {}; the last is {}",
             ticket, last_);
  const auto is_it = [&](const Slot& slot) { return slot.transfer && slot.ticket == ticket; };
  while (std::ranges::any_of(slots_, is_it)) take_one();
  const auto failure = failures_.extract(ticket);
  ZERO_CHECK(failure.empty(), "{}", failure.mapped());
}

void Queue::go_on(Slot& slot) {
  Transfer& transfer = *slot.transfer;
  if (transfer.wants_call() && !refused_) {
    io_uring_sqe* const entry = io_uring_get_sqe(ring_->get());  // the ring has one for each slot
    prepare(entry, transfer.next_call());
    io_uring_sqe_set_data(entry, &slot);
    prepared_.push_back(&slot);
    if (one_by_one_) flush();
  } else {
    end(slot);
  }
}

void Queue::end(Slot& slot) {
  if (std::string error = error_of(*slot.transfer); !error.empty()) {
    failures_.emplace(slot.ticket, std::move(error));
  }
  slot.transfer.reset();
}

void Queue::prepare(io_uring_sqe* entry, const Transfer::Call& call) const {
  const auto offset = static_cast<__u64>(call.offset);
  const auto bytes = static_cast<unsigned>(call.memory.size());
  const auto begin = reinterpret_cast<std::uintptr_t>(call.memory.data()) -
                     reinterpret_cast<std::uintptr_t>(registered_.data());  // wraps if before it
  const std::size_t buffer = begin / kLargestBuffer;
  const bool fixed = begin < registered_.size() &&
                     call.memory.size() <= registered_.size() - begin &&
                     (begin + call.memory.size() - 1) / kLargestBuffer == buffer;
  const auto index = static_cast<int>(buffer);
  if (call.kind == Transfer::Kind::write) {
    if (!fixed) {
      return io_uring_prep_write(entry, call.descriptor, call.memory.data(), bytes, offset);
    }
    return io_uring_prep_write_fixed(entry, call.descriptor, call.memory.data(), bytes, offset,
                                     index);
  }
  if (!fixed) return io_uring_prep_read(entry, call.descriptor, call.memory.data(), bytes, offset);
  io_uring_prep_read_fixed(entry, call.descriptor, call.memory.data(), bytes, offset, index);
}

void Queue::flush() {
  const DiskCall counted;  // the kernel may transfer while it takes them
  std::int64_t pauses = 0;
  while (!prepared_.empty() && !refused_) {
    const int result = io_uring_submit(ring_->get());
    if (result > 0) {
      pauses = 0;
      in_kernel_ += result;
      prepared_.erase(prepared_.begin(), prepared_.begin() + result);
    } else if ((result == -EAGAIN || result == -EBUSY) && pauses++ < most_pauses_) {
      std::this_thread::sleep_for(kPause);  // until the kernel has memory for it
    } else {
      refused_ = result != -EINTR;
    }
  }
  if (!refused_) return;
  for (Slot* const slot : std::exchange(prepared_, {})) end(*slot);
}

void Queue::take_one() {
  flush();
  if (in_kernel_ == 0) return;  // refused: all transfers have ended
  int error = 0;
  io_uring_cqe* const ended = next_end(error);
  if (ended == nullptr) return lose(error);
  Slot& slot = *static_cast<Slot*>(io_uring_cqe_get_data(ended));
  const int result = ended->res;
  io_uring_cqe_seen(ring_->get(), ended);
  --in_kernel_;
  // The kernel did not wait (some before 6.0 answer so to large requests, again and again), or has
  // no thread that could wait for it (ulimit -u, pids.max): this thread makes the call.
  if (result == -EAGAIN || result == -ECANCELED) return end(slot);
  slot.transfer->advance(result);
  go_on(slot);
}

io_uring_cqe* Queue::next_end(int& error) {
  const DiskCall counted;
  io_uring_cqe* ended = nullptr;
  for (std::int64_t pauses = 0; pauses <= most_pauses_;) {
    error = -io_uring_wait_cqe(ring_->get(), &ended);
    if (error == 0) return ended;
    if (error == EINTR) continue;
    ++pauses;
    std::this_thread::sleep_for(kPause);
  }
  return nullptr;
}

void Queue::lose(int error) {
  refused_ = true;
  in_kernel_ = 0;
  for (Slot& slot : slots_) {
    if (!slot.transfer) continue;
    failures_.emplace(slot.ticket,
                      fmt::format("{}: io_uring does not tell how a transfer ended: {}",
                                  slot.transfer->path(), reason_of(error)));
    slot.transfer.reset();
  }
}

}  // namespace

UringQueue open_uring_queue(std::span<std::byte> memory, const QueueOptions& options) {
  auto ring = std::make_unique<Ring>(options.depth);
  if (ring->error() != 0) {
    return {nullptr,
            fmt::format("no io_uring: {}{}", reason_of(ring->error()), advice_on(ring->error()))};
  }
  if (!ring->reads_and_writes()) {
    return {nullptr, "no io_uring: the kernel's has no reads and writes (Linux 5.6 has them)"};
  }
  auto queue = std::make_unique<Queue>(std::move(ring), options);
  if (memory.empty()) return {std::move(queue), ""};
  const int error = queue->register_memory(memory);
  if (error == 0) return {std::move(queue), "registered buffers"};
  // An older kernel registers no memory of a file, as that is which CUDA pins: of /dev/nvidiactl.
  const char* const advice = error == ENOMEM       ? " (ulimit -l bounds them)"
                             : error == EOPNOTSUPP ? " (a newer kernel registers a GPU's too)"
                                                   : "";
  return {std::move(queue), fmt::format("buffers not registered: {}{}", reason_of(error), advice)};
}

}  // namespace zero::files
