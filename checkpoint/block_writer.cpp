// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/block_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "device/cpu/primitives.h"
#include "weights/file_blocks.h"

namespace zero {
namespace {

constexpr std::int64_t kPage = 4096;  // of memory that a disk reads by itself

}  // namespace

void BackgroundQueue::add(std::function<void()> work) {
  const std::lock_guard starting(starting_);
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    if (std::exchange(running_, true)) return;
  }
  if (thread_.joinable()) thread_.join();  // has found no work, and ends
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    run();
  }
}

void BackgroundQueue::run() noexcept {
  for (;;) {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (work_.empty()) {
        running_ = false;
        return;
      }
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

void BackgroundQueue::join() noexcept {
  const std::lock_guard starting(starting_);
  if (thread_.joinable()) thread_.join();
}

BlockWriter::BlockWriter(const StateSource& of, StateTensors tensors, CheckpointLayout layout,
                         SaveStates states)
    : engine_(of.engine),
      device_(of.engine.device()),
      replica_(of.engine.mesh().replica_group().implementation()),
      disk_(of.disk),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      states_(states),
      writes_(layout_.files().size()),
      per_round_(std::min(kBlocksPerRound, layout_.blocks().count())),
      block_bytes_(round_up(layout_.blocks().largest(), kPage)),
      slots_(static_cast<std::size_t>(std::min(kSlots, layout_.blocks().count()))),
      reads_(engine_.unit_names().size()) {
  allocate();
  if (!device_.has_memory()) return;
  const Mesh& mesh = engine_.mesh().mesh();
  plan_.emplace(layout_, tensors_.numbers(layout_), tensors_.owners(engine_),
                SavePlan::Dealing{.replica = mesh.index(Axis::replicate),
                                  .replicas = mesh.size(Axis::replicate),
                                  .per_round = std::max<std::int64_t>(per_round_, 1),
                                  .exchanged = kBlocksExchanged,
                                  .block_elements = block_elements()});
  for (std::int64_t block = mesh.index(Axis::replicate); block < layout_.blocks().count();
       block += mesh.size(Axis::replicate)) {
    if (plan_->writer(block) == replica_.rank()) ++writes_[layout_.blocks().at(block).file];
  }
  queue_ = disk_.queue(
      std::as_writable_bytes(staging_.view().as<float>()),
      {.depth = narrow<int>(std::max<std::int64_t>(std::ssize(slots_) * per_round_, 1))});
}

BlockWriter::~BlockWriter() {
  // One by one: a stream that has failed has dropped its work, and another still uses the memory.
  const auto wait = [](auto&& of) {
    try {
      of.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch)
    }
  };
  for (const Exchange& each : exchanges_) wait(each.sent);
  wait(device_.compute());
  wait(device_.transfer());
}

void BlockWriter::allocate() {
  const std::int64_t count = per_round_ * block_elements();
  staging_ = device_.allocate_host(std::ssize(slots_) * count, DType::fp32, MemoryClass::staging,
                                   "blocks to write");
  for (std::size_t i = 0; i < slots_.size(); ++i)
    slots_[i].memory = staging_.slice(static_cast<std::int64_t>(i) * count, count);
  checksums_ = device_.allocate_host(layout_.blocks().count(), DType::i32, MemoryClass::staging,
                                     "checksums of blocks");
  if (replica_.size() == 1) return;
  exchanges_.resize(static_cast<std::size_t>(std::min(kExchanges, layout_.blocks().count())));
  in_flight_ = exchanges_.size();
  const std::int64_t exchanged = std::min(per_round_, kBlocksExchanged) * block_elements();
  for (Exchange& each : exchanges_) {
    each.send = device_.allocate(exchanged, DType::fp32, MemoryClass::communication,
                                 "elements of other ranks' blocks");
    each.receive = device_.allocate_host(exchanged, DType::fp32, MemoryClass::staging,
                                         "elements of this rank's blocks");
    each.mirror = DeviceMirror(device_, exchanged, DType::fp32, MemoryClass::communication,
                               "elements of this rank's blocks");
  }
}

int BlockWriter::rounds() const { return plan_ ? narrow<int>(plan_->rounds()) : 0; }

void BlockWriter::begin(std::vector<std::unique_ptr<files::OutputFile>> files) {
  files_ = std::move(files);
  left_ = writes_;
  failure_.clear();
  std::ranges::fill(checksums_.view().as<std::int32_t>(), 0);
  std::ranges::fill(reads_, Event());
  ended_ = false;
  if (rounds() == 0) ended_ = true;
}

void BlockWriter::close() {
  side_.join();
  files_.clear();
}

void BlockWriter::cancel() {
  ended_ = true;
  close();
}

void BlockWriter::submit(int round) {
  const SavePlan::Round part = plan_->of(round, replica_.rank());
  const bool exchanges = plan_->exchanges(round);
  if (exchanges) exchange(round, part);
  fill(round, part);
  if (round == rounds() - 1) {
    device_.transfer().submit_host("end of writing", [this] { end(); });
  }
}

/// The elements of this rank for other ranks' blocks, and those of other ranks for this rank's.
void BlockWriter::exchange(std::int64_t round, const SavePlan::Round& part) {
  Exchange& memory = exchange_of(round);
  Stream& compute = device_.compute();
  Stream& communication = device_.communication();
  wait(compute, memory.sent, WriteWait::sent_before_pack);
  for (const SavePlan::Part& each : part.pack) {
    engine_.states().copy(tensors_[each.tensor], each.begin, memory.send.slice(each.at, each.count),
                          compute);
  }
  wait(communication, compute.record(), WriteWait::pack_before_exchange);
  wait(communication, memory.placed, WriteWait::placed_before_exchange);
  replica_.all_to_all({memory.send.view(), part.send},
                      {memory.mirror.of(memory.receive.view()), part.receive}, communication,
                      {"checkpoint", {}});
  memory.sent = communication.record();
}

/// Puts this rank's blocks together in a slot, and hands them to the queue.
void BlockWriter::fill(std::int64_t round, const SavePlan::Round& part) {
  if (part.blocks.empty()) return;
  Stream& transfer = device_.transfer();
  Slot& slot = slots_[static_cast<std::size_t>(round) % slots_.size()];
  transfer.submit_host("free slot", [this, &slot] { free_slot(slot); });
  for (const SavePlan::Part& each : part.own) {
    engine_.states().copy(tensors_[each.tensor], each.begin, slot.memory.slice(each.at, each.count),
                          transfer);
  }
  const Event read = transfer.record();
  for (const SavePlan::Part& each : part.own)
    reads_[static_cast<std::size_t>(tensors_[each.tensor].unit)] = read;
  if (!part.place.empty()) {
    Exchange& memory = exchange_of(round);
    wait(transfer, memory.sent, WriteWait::exchange_before_place);
    const Slices::Range& last = part.receive.back();
    memory.mirror.download(transfer, memory.receive.slice(0, last.begin + last.count));
    transfer.submit_host(
        "place elements", [from = memory.receive.view(), to = slot.memory, places = part.place] {
          for (const SavePlan::FileOffset& each : places)
            cpu::convert(from.slice(each.from, each.count), to.slice(each.at, each.count));
        });
    memory.placed = transfer.record();
  }
  transfer.submit_host("write blocks", [this, &slot, blocks = part.blocks] {
    attempt([&] { write_blocks(slot, blocks); });
  });
}

void BlockWriter::wait(Stream& stream, const Event& event, WriteWait site) const {
  if (skipped_ != site) stream.wait(event);
}

/// Runs work that may fail, unless some has failed; keeps the reason.
void BlockWriter::attempt(const std::function<void()>& work) noexcept {
  {
    const std::lock_guard lock(failing_);
    if (!failure_.empty()) return;
  }
  fail_with(failure_of(work));
}

/// Keeps the first reason.
void BlockWriter::fail_with(const std::string& why) noexcept {
  const std::lock_guard lock(failing_);
  if (failure_.empty()) failure_ = why;
}

/// Waits for the writes of a slot, failed or not.
void BlockWriter::free_slot(Slot& slot) noexcept {
  for (const auto& [ticket, file] : std::exchange(slot.writing, {})) {
    fail_with(failure_of([&, of = ticket] { queue_->wait(of); }));
    if (--left_[file] == 0) finish(file);
  }
}

/// All of this rank's blocks of a file are written.
void BlockWriter::finish(std::size_t file) {
  side_.add([this, file] {
    attempt([&] { files_[file]->sync(); });
    files_[file].reset();
  });
}

void BlockWriter::check_finite(const Block& block, std::span<const std::byte> bytes) const {
  constexpr std::uint32_t kExponent = 0x7f800000;  // all its bits: NaN or infinite
  layout_.for_each_piece(block, [&](const BlockPiece& piece) {
    const std::span<const std::uint32_t> elements(
        reinterpret_cast<const std::uint32_t*>(bytes.data() + piece.offset),
        static_cast<std::size_t>(piece.count));
    const auto bad = [](std::uint32_t bits) { return (bits & kExponent) == kExponent; };
    std::uint32_t any = 0;  // no early end: the loop is vector code
    for (const std::uint32_t bits : elements) any |= bad(bits) ? 1U : 0U;
    if (any == 0) return;
    const LayoutTensor& tensor = layout_.tensors()[piece.tensor];
    const std::int64_t at = std::ranges::find_if(elements, bad) - elements.begin();
    fail("{} of tensor \"{}\" is NaN or infinite, first in element {}: such states are not saved",
         name_of(tensor.kind), tensor.name, piece.source_begin - tensor.source_begin + at);
  });
}

void BlockWriter::write_blocks(Slot& slot, std::span<const std::int64_t> blocks) {
  const std::span<std::int32_t> checksums = checksums_.view().as<std::int32_t>();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block block = layout_.blocks().at(blocks[i]);
    const std::span<std::byte> bytes = std::as_writable_bytes(slot.memory.as<float>())
                                           .subspan(i * static_cast<std::size_t>(block_bytes_),
                                                    static_cast<std::size_t>(block.bytes));
    const std::string_view head = layout_.head_of(block);
    std::memcpy(bytes.data(), head.data(), head.size());
    if (states_ == SaveStates::finite) check_finite(block, bytes);
    checksums[static_cast<std::size_t>(blocks[i])] = static_cast<std::int32_t>(crc32c(bytes));
    slot.writing.push_back({queue_->write(*files_[block.file], block.begin, bytes), block.file});
  }
}

/// The last work of a save on the stream. States that this rank could not read are nobody's to
/// save: it has sent them to other ranks' blocks too, whose checksums hold. Once the side thread
/// has come to its end, the files of this rank are durable, or this rank has failed.
void BlockWriter::end() noexcept {
  for (Slot& slot : slots_) free_slot(slot);
  fail_with(engine_.states().failure());
  side_.add([this] { ended_ = true; });
}

Event BlockWriter::read(int unit) const { return reads_[static_cast<std::size_t>(unit)]; }

std::span<const std::uint32_t> BlockWriter::sum_checksums(Communicator& world) {
  host_all_reduce(world, device_, checksums_.view(), ReduceOp::sum, {"checksums of blocks", {}});
  const std::span<std::int32_t> sums = checksums_.view().as<std::int32_t>();
  return {reinterpret_cast<const std::uint32_t*>(sums.data()), sums.size()};
}

}  // namespace zero
