// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "collectives/backend_kind.h"
#include "collectives/mesh_shape.h"
#include "device/device.h"

namespace zero {

/// What a simulation of a run knows of a machine, beside the rates of Machine. In a cluster file:
///
///     "peak": "989TFLOP/s", "peak_fp32": "67TFLOP/s",   (in place of compute, or beside it)
///     "memory_bandwidth": "3.35TB/s",
///     "shares": {"products": 0.7, "attention": 0.5, "memory": 0.9, "beside_communication": 0.95,
///                "polling": 0.1},
///     "submit": "4us", "least_time": "3us", "cores": 64, "operations": "ops.json",
///     "links": {"between_switches": "25GB/s", "of_host": "400GB/s", "hosts_of_switch": 32,
///               "message": "500ns", "collective": "8us", "beside_compute": "1.4Gbit/s"},
///     "failures": {"between": "3000h", "save": "30s", "restart": "10min"}
struct MachineTimes {
  double peak = 0;              ///< FLOP/s of a device in half precision, for the FLOP share
  double peak_fp32 = 0;         ///< the same in fp32
  double memory_bandwidth = 0;  ///< bytes/s that work of a device reads and writes

  // Shares of the rates that are reached.
  double products = 1;              ///< of compute, by products
  double attention = 1;             ///< of compute, by attention
  double memory = 1;                ///< of memory_bandwidth
  double beside_communication = 1;  ///< of a GPU's compute while collectives run
  double polling = 0;               ///< of a core, by a thread that waits for the network

  double submit = 0;         ///< seconds of a GPU's host thread for a piece of work
  double least_time = 0;     ///< seconds that any piece of work takes at least
  int cores = 0;             ///< of a host, shared by its ranks on CPUs; 0: a core for each thread
  std::string operations{};  ///< the path of measured rates of operations; empty: none

  double within_host_latency = 0;
  double between_hosts_latency = 0;
  double between_switches = 0;  ///< bytes/s of a device to hosts of other switches; 0: as any host
  double between_switches_latency = 0;  ///< 0: as between hosts
  double host_bandwidth = 0;            ///< bytes/s that leave a host, of all devices; 0: any
  int hosts_of_switch = 0;              ///< 0: all
  double beside_compute = 0;  ///< bytes/s between hosts of a CPU whose core computes too; 0: any
  double message = 0;         ///< seconds of a rank for each of the messages that it sends at once
  double collective = 0;      ///< seconds of every collective of GPUs, once, beside its hops

  double between_failures = 0;  ///< seconds, of a host; 0: no failures
  double save = 0;              ///< seconds that a checkpoint holds training up
  double restart = 0;           ///< seconds from a failure to training again
};

/// What a run has: hosts of equal devices, one rank a device.
struct Machine {
  int hosts = 1;
  int devices = 1;  ///< of a host
  DeviceKind kind = DeviceKind::cuda;
  std::int64_t memory = 0;       ///< bytes of a device
  std::int64_t reserve = 0;      ///< of them, kept free for what no plan knows
  std::int64_t host_memory = 0;  ///< bytes of a host that its GPUs' ranks may take; 0: not known
  std::string source{};          ///< for messages: "--gpus", a file
  std::string memory_source{};   ///< what `memory` is, if it was asked: "free on GPU 1, the least"

  /// Rates, as given; 0: unknown, and no time is estimated.
  double compute = 0;        ///< FLOP/s of a device in half precision
  double compute_fp32 = 0;   ///< FLOP/s of a device in fp32
  double within_host = 0;    ///< bytes/s that a device sends to others of its host
  double between_hosts = 0;  ///< bytes/s that a device sends to other hosts
  MachineTimes times{};      ///< what simulations know beyond these

  /// Devices in all: a plan compares what all ranks would say, which takes time and memory of each.
  static constexpr int kMostInAll = 1 << 14;
  static constexpr int kMostHosts = 1 << 16;
  static constexpr int kMostDevices = 1024;
  /// Throws zero::Error with `place`, a flag or a file, if there are more.
  void check_world(std::string_view place) const;

  int world() const { return hosts * devices; }
  /// Bytes that a plan may take.
  std::int64_t budget() const { return memory - reserve; }
  /// How ranks talk: decides the memory of sums.
  BackendKind backend() const;
  /// Whether a group of the axis has ranks of several hosts; ranks of tensor, then shard, are
  /// adjacent.
  bool leaves_host(Axis axis, const MeshShape& mesh) const;
  /// Whether the rates are known that a run in `dtype` needs.
  bool has_rates(DType dtype) const;
  bool has_some_rates() const { return has_rates(DType::bf16) || has_rates(DType::fp32); }
  double rate(DType dtype) const { return dtype == DType::fp32 ? compute_fp32 : compute; }
  /// FLOP/s in `dtype` before the shares of MachineTimes apply: `compute` if given, else the peak.
  double reached(DType dtype) const;
  /// FLOP/s of a device in `dtype` that a FLOP share is of: the peak, else as given.
  double peak(DType dtype) const;
  /// "8 hosts x 8 GPUs of 80.00 GB (74.51 GiB)".
  std::string text() const;
};

/// What is kept free unless it is said how much: of a GPU 1 GiB for CUDA's context, its libraries,
/// kernels and graphs, and 1 GiB for NCCL if there are others; nothing of a CPU.
std::int64_t usual_reserve(const Machine& machine);

/// "8" or "8x8" (hosts x devices). Throws zero::Error with `flag`, found and expected.
void take_gpus(Machine& machine, std::string_view text, std::string_view flag);

/// A cluster file:
///
///     {"hosts": 8, "devices": 8, "kind": "gpu", "memory": "80GB", "reserve": "2GiB",
///      "host_memory": "1.5TiB", "compute": "400TFLOP/s", "compute_fp32": "50TFLOP/s",
///      "links": {"within_host": "300GB/s", "between_hosts": "40GB/s"}}
///
/// and, for simulations, the keys of MachineTimes. Without `reserve`: usual_reserve(). A link may
/// be an object {"bandwidth": ..., "latency": "5us"}. `devices` and `memory` are required. Throws
/// zero::Error naming file, key, found and expected; with the nearest known key for one that is
/// unknown.
Machine machine_of(const nlohmann::json& cluster, const std::string& source);
/// That of the file `path`, which `flag` names in messages.
Machine read_cluster(const std::string& path, std::string_view flag);

/// Bytes that this host has available for each of so many ranks, less a sixteenth for what no plan
/// counts (programs, their libraries, pages of files); 0 if the system does not tell.
std::int64_t part_of_host(int ranks);

/// This machine: its GPUs, each with the least that is free on any, less usual_reserve(), and
/// part_of_host() of all; or `ranks` ranks on its CPU, which share evenly what is available.
Machine this_machine(int ranks);

/// Throws zero::Error if nothing of the memory is left to plan, or if host memory is given for
/// CPUs, whose memory it is.
void check(const Machine& machine);

/// What plans of the machine's memory do not count, and what is kept free for that.
std::string not_counted_text(const Machine& machine);
/// Whose operations plan the scratch: a build without CUDA has none of a GPU.
std::string planned_with_text(const Machine& machine);
/// Both, to go on with in a sentence.
std::string left_out_text(const Machine& machine);
nlohmann::ordered_json json_of(const Machine& machine);

}  // namespace zero
