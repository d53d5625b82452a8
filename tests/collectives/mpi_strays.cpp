// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// One of four ranks makes another call than the others: mpi_strays LAYOUT RANK. LAYOUT: a letter
// for the host of each rank, or "messages".
#include <array>
#include <string>

#include "collectives/mpi/options.h"
#include "tests/collectives/body.h"
#include "tests/collectives/mpi_program.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

constexpr std::array kOperations{Operation::all_gather, Operation::reduce_scatter,
                                 Operation::all_reduce, Operation::all_to_all,
                                 Operation::broadcast,  Operation::barrier};

void call(Communicator& world, Device& device, Operation operation, const std::string& purpose) {
  Stream& stream = device.communication();
  std::vector<float> values(800);
  const Slices full = Slices::even(View::of(std::span(values)).slice(0, 400), world.size());
  const Slices other = Slices::even(View::of(std::span(values)).slice(400, 400), world.size());
  std::vector<float> workspace(static_cast<std::size_t>(world.reduce_scatter_workspace(full)));
  const View own = full.of(world.rank());
  switch (operation) {
    case Operation::all_gather:
      world.all_gather(own, full, stream, {purpose});
      break;
    case Operation::reduce_scatter:
      world.reduce_scatter(full, {{}, own, nullptr}, View::of(std::span(workspace)), stream,
                           {purpose});
      break;
    case Operation::all_reduce:
      world.all_reduce(full.buffer, ReduceOp::sum, stream, {purpose});
      break;
    case Operation::all_to_all:
      world.all_to_all(full, other, stream, {purpose});
      break;
    case Operation::broadcast:
      world.broadcast(full.buffer, 0, stream, {purpose});
      break;
    case Operation::barrier:
      world.barrier(stream, {purpose});
  }
  stream.synchronize();
}

/// The others call `operation`, rank `strayer` calls `strayed`. Whoever needs nobody else in it
/// hears of the failure in the next call.
void check_stray(Communicator& world, int strayer, Operation operation, Operation strayed,
                 const std::string& purpose) {
  const auto device = cpu::open();
  const bool strays = world.rank() == strayer;
  const std::string message = error_of([&] {
    call(world, *device, strays ? strayed : operation, strays ? purpose : "h.0");
    world.barrier(device->communication(), {"after"});
    device->communication().synchronize();
  });
  const std::string right = fmt::format("{}(h.0)", name_of(operation));
  const std::string wrong = fmt::format("{}({})", name_of(strayed), purpose);
  const bool names_both =
      message.find(right) != std::string::npos && message.find(wrong) != std::string::npos;
  expect(names_both && message.starts_with(fmt::format("[rank {}] ", world.rank())),
         fmt::format("{} met {}: {}", right, wrong, message));
}

void run(int* argc, char*** argv) {
  const mpi::Options options = options_of((*argv)[1]);
  const int strayer = std::stoi((*argv)[2]);
  const auto keeps_mpi = mpi::world(argc, argv, options);
  for (const Operation operation : kOperations) {
    const bool is_barrier = operation == Operation::barrier;
    const Operation other = is_barrier ? Operation::all_reduce : Operation::barrier;
    check_stray(*mpi::world(argc, argv, options), strayer, operation, other, "h.0");
    check_stray(*mpi::world(argc, argv, options), strayer, operation, operation, "h.1");
  }
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) { return zero::test::mpi_program(argc, argv, zero::test::run); }
