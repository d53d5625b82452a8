// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_ranks.h"

#include <cstdint>
#include <span>

#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "launch/process/tier_room.h"
#include "launch/watch/run_faults.h"

namespace zero {
AnswerRanks::AnswerRanks(Communicator& world, Device* device, int replicate, int tensor,
                         RunFaults* faults)
    : world_(world), device_(device), faults_(faults) {
  lay_out(replicate, tensor);
}

void AnswerRanks::lay_out(int replicate, int tensor) {
  Communicator& world = world_;
  const std::int64_t together = std::int64_t{replicate} * tensor;
  ZERO_CHECK(world.size() % together == 0,
             "--replicate {} and --tensor {} need a multiple of {} ranks, found {}: mpirun -np {}, "
             "or --local-ranks {}",
             replicate, tensor, together, world.size(), together, together);
  shape_ = MeshShape{.replicate = replicate, .tensor = tensor}.resolved(world.size());
  mesh_.reset();
  if (world.size() == 1) return;
  mesh_ = std::make_unique<Mesh>(world, shape_);
  if (faults_ != nullptr) faults_->record(*mesh_, world);
}

AnswerRanks::~AnswerRanks() = default;

bool AnswerRanks::first() const { return world_.rank() == 0; }
int AnswerRanks::count() const { return world_.size(); }
int AnswerRanks::on_this_host() const { return world_.local_size(); }
bool AnswerRanks::speaks() const { return !mesh_ || mesh_->index(Axis::tensor) == 0; }

bool AnswerRanks::computes(std::size_t number) const {
  if (!mesh_) return true;
  const int group = mesh_->index(Axis::replicate) * shape_.shard + mesh_->index(Axis::shard);
  return static_cast<int>(number % static_cast<std::size_t>(groups())) == group;
}

void AnswerRanks::set_step(std::int64_t step) { world_.set_step(step); }

std::string AnswerRanks::share(std::string text) {
  if (!mesh_) return text;
  auto bytes = static_cast<std::int64_t>(text.size());
  host_broadcast(world_, *device_, View::of(std::span(&bytes, 1)), 0,
                 {.purpose = "size of a text"});
  text.resize(static_cast<std::size_t>(bytes));
  if (bytes == 0) return text;
  auto* const data = reinterpret_cast<std::uint8_t*>(text.data());
  host_broadcast(world_, *device_, View::of(std::span(data, text.size())), 0, {.purpose = "text"});
  return text;
}

bool AnswerRanks::any(bool value) {
  if (!mesh_) return value;
  std::int64_t number = value ? 1 : 0;
  host_all_reduce(world_, *device_, View::of(std::span(&number, 1)), ReduceOp::max,
                  {.purpose = "what ranks do next"});
  return number > 0;
}

std::vector<std::string> AnswerRanks::gather(const std::string& text) {
  if (!mesh_) return {text};
  return all_gather_texts(world_, *device_, text, "texts");
}

std::vector<std::string> AnswerRanks::agree_on_room(const TierPlace& place,
                                                    const TierNeeds& needs) {
  if (!mesh_) {
    check_tier_folder(place);
    return check_tier_room(place, std::span(&needs, 1), files::disk());
  }
  agree(world_, *device_, "folder of files", [&] { check_tier_folder(place); });
  return agree_on_tier_room(place, needs, world_, *device_, files::disk());
}

}  // namespace zero
