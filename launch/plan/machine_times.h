// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero {

/// What a simulation of a run knows of a machine, beside the rates of Machine. In a cluster file:
///
///     "peak": "989TFLOP/s", "peak_fp32": "67TFLOP/s",   (in place of compute, or beside it)
///     "memory_bandwidth": "3.35TB/s",
///     "shares": {"products": 0.7, "attention": 0.5, "memory": 0.9, "beside_communication": 0.95,
///                "beside_compute": 0.7, "polling": 0.1},
///     "submit": "4us", "least_time": "3us", "cores": 64, "operations": "ops.json",
///     "links": {"between_switches": "25GB/s", "of_host": "400GB/s", "hosts_of_switch": 32,
///               "message": "500ns", "collective": "8us"},
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
  double beside_compute = 1;        ///< of a link of CPUs, while their core computes too
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
  double message = 0;     ///< seconds of a rank for each of the messages that it sends at once
  double collective = 0;  ///< seconds of every collective of GPUs, once, beside its hops

  double between_failures = 0;  ///< seconds, of a host; 0: no failures
  double save = 0;              ///< seconds that a checkpoint holds training up
  double restart = 0;           ///< seconds from a failure to training again
};

}  // namespace zero
