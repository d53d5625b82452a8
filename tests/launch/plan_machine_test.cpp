// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/cgroup.h"
#include "launch/config/configuration.h"
#include "launch/plan/machine.h"
#include "launch/plan/model_choice.h"
#include "launch/process/quantity.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "weights/hf/config.h"

// What zero_plan is told of machines and models.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Machine cluster(const std::string& text) {
  return machine_of(parse_json_text(text, "c.json"), "c.json");
}
std::string cluster_refusal(const std::string& text) {
  return error_of([&] { cluster(text); });
}

TEST(Quantities, HaveUnits) {
  EXPECT_EQ(bytes_with_unit("80GB", "x"), 80'000'000'000);
  EXPECT_EQ(bytes_with_unit("80 GiB", "x"), 85'899'345'920);
  EXPECT_EQ(bytes_with_unit("1.5MiB", "x"), 1'572'864);
  EXPECT_EQ(bytes_with_unit("1.5 GB", "x"), 1'500'000'000);
  EXPECT_EQ(bytes_with_unit("4kB", "x"), 4000);
  EXPECT_EQ(link_rate("200Gbit/s", "x"), 25e9);
  EXPECT_EQ(link_rate("450GB/s", "x"), 450e9);
  EXPECT_EQ(compute_rate("1.2 PFLOP/s", "x"), 1.2e15);
  const auto refused = [](const char* text) {
    return error_of([&] { bytes_with_unit(text, "--memory"); });
  };
  EXPECT_THAT(refused("80"), HasSubstr("--memory: found \"80\" without a unit, expected a number"));
  for (const char* wrong :
       {"", "GB", "80gb", "-1GB", "0GB", "1e3GB", "80GBs", "nanGB", "1.2.3GB"}) {
    EXPECT_THAT(refused(wrong), HasSubstr("expected a number above 0 and one of the units B, kB"))
        << wrong;
  }
  EXPECT_THAT(refused("4KB"), HasSubstr("--memory: found \"4KB\" (did you mean kB?), expected"));
  EXPECT_THAT(refused("8gib"), HasSubstr("(did you mean GiB?)"));
  EXPECT_THAT(refused("9999999TiB"), HasSubstr("expected 1 B to 2^60 B"));
  EXPECT_EQ(bytes_or_none("2GiB", "--reserve"), 2'147'483'648);
  for (const char* none : {"0B", "0 GB", "0.0MiB"}) EXPECT_EQ(bytes_or_none(none, "--reserve"), 0);
  for (const char* wrong : {"0", "-0B", "0gb", "x0B"}) {
    EXPECT_THAT(error_of([&] { bytes_or_none(wrong, "--reserve"); }), HasSubstr("--reserve: found"))
        << wrong;
  }
  EXPECT_EQ(both_units(107'814'649'856.0), "107.81 GB (100.41 GiB)");
}

TEST(Machines, AreGivenByGpus) {
  Machine machine;
  take_gpus(machine, "2x8", "--gpus");
  EXPECT_EQ(machine.hosts, 2);
  EXPECT_EQ(machine.devices, 8);
  take_gpus(machine, "4", "--gpus");
  EXPECT_EQ(machine.world(), 8);
  for (const char* wrong : {"", "x", "8x", "x8", "0", "8x0", "-1", "8X8", "8x8x8", "1.5", "8 "}) {
    EXPECT_THAT(error_of([&] { take_gpus(machine, wrong, "--gpus"); }),
                HasSubstr("expected GPUs of one host, such as 8, or hosts x GPUs"))
        << wrong;
  }
}

TEST(Machines, AreGivenByAClusterFile) {
  const Machine machine = cluster(R"({"_note": "ours", "hosts": 4, "devices": 8, "memory": "80GB",
      "reserve": "2GiB", "compute": "400TFLOP/s",
      "links": {"within_host": "300GB/s", "between_hosts": "400Gbit/s"}})");
  EXPECT_EQ(machine.world(), 32);
  EXPECT_EQ(machine.kind, DeviceKind::cuda);
  EXPECT_EQ(machine.budget(), 80'000'000'000 - 2'147'483'648);
  EXPECT_EQ(machine.between_hosts, 50e9);
  EXPECT_TRUE(machine.has_rates(DType::bf16));
  EXPECT_FALSE(machine.has_rates(DType::fp32));
  EXPECT_EQ(machine.backend(), BackendKind::nccl);
  EXPECT_EQ(cluster(R"({"devices": 2, "memory": "8GiB", "kind": "cpu"})").backend(),
            BackendKind::host);
  EXPECT_EQ(cluster(R"({"devices": 1, "memory": "8GiB"})").backend(), BackendKind::local);
}

TEST(Machines, KeepPartOfAGpuFreeUnlessItIsSaid) {
  const auto reserve = [](const std::string& more) {
    return cluster(R"({"memory": "8GiB", )" + more + "}").reserve;
  };
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  EXPECT_EQ(reserve(R"("devices": 1)"), kGib);
  EXPECT_EQ(reserve(R"("devices": 2)"), 2 * kGib) << "NCCL";
  EXPECT_EQ(reserve(R"("devices": 1, "hosts": 2)"), 2 * kGib);
  EXPECT_EQ(reserve(R"("devices": 2, "kind": "cpu")"), 0);
  EXPECT_EQ(reserve(R"("devices": 2, "reserve": "0B")"), 0);
  EXPECT_EQ(reserve(R"("devices": 2, "kind": "cpu", "reserve": "1GiB")"), kGib);
  EXPECT_EQ(cluster(R"({"devices": 1, "memory": "8GiB", "host_memory": "1TiB"})").host_memory,
            1024 * kGib);
  EXPECT_THAT(
      error_of([] {
        check(cluster(R"({"devices": 1, "memory": "8GiB", "kind": "cpu", "host_memory": "1GiB"})"));
      }),
      HasSubstr("c.json: host memory of 1.07 GB (1.00 GiB) is given, expected none for CPUs"));
  EXPECT_THAT(error_of([] { check(cluster(R"({"devices": 1, "memory": "1GiB"})")); }),
              AllOf(HasSubstr("kept free (1.07 GB (1.00 GiB))"), HasSubstr("--reserve 0B")));
}

TEST(Machines, SayWhatIsNotCountedAndWhatIsKeptForIt) {
  const Machine gpus{.devices = 2, .memory = 80'000'000'000, .reserve = 2'000'000'000};
  EXPECT_THAT(left_out_text(gpus),
              AllOf(HasSubstr("pages of 2 MiB"), HasSubstr("NCCL take for themselves; 2.00 GB")));
  const Machine cpu{.kind = DeviceKind::cpu, .memory = 80'000'000'000};
  EXPECT_EQ(left_out_text(cpu),
            ". Not in it: what the program, its libraries and MPI take for themselves; nothing is "
            "kept free for that (--reserve)");
  EXPECT_EQ(planned_with_text(cpu), "the device's operations");
}

TEST(Machines, OfThisHostHaveWhatIsAvailable) {
  const Machine machine = this_machine(2);
  EXPECT_EQ(machine.kind, DeviceKind::cpu);
  EXPECT_EQ(machine.devices, 2);
  EXPECT_GT(machine.memory, 0);
  EXPECT_LE(machine.memory, total_memory().value() / 2);
  EXPECT_THAT(machine.text(), HasSubstr(", a rank's part of what is available on this host"));
  EXPECT_EQ(json_of(machine)["memory_source"], machine.memory_source);
}

TEST(Machines, OfABadClusterFileAreRefusedByKey) {
  EXPECT_THAT(cluster_refusal(R"({"devices": 8, "memroy": "80GB"})"),
              HasSubstr("c.json: there is no key \"memroy\": did you mean memory?"));
  EXPECT_THAT(cluster_refusal(R"({"devices": 8, "memory": "80GB", "links": {"within": "1GB/s"}})"),
              AllOf(HasSubstr("there is no key \"links.within\""), HasSubstr("between_hosts")));
  EXPECT_THAT(cluster_refusal(R"({"memory": "80GB"})"), HasSubstr("c.json: devices is missing"));
  EXPECT_THAT(cluster_refusal(R"({"devices": 8})"), HasSubstr("c.json: memory is missing"));
  EXPECT_THAT(cluster_refusal(R"({"devices": 8, "memory": 80})"),
              HasSubstr("c.json: memory: found 80, expected a text with a unit"));
  EXPECT_THAT(cluster_refusal(R"({"devices": 8, "memory": "80"})"),
              HasSubstr("c.json: memory: found \"80\" without a unit"));
  EXPECT_THAT(cluster_refusal(R"({"devices": 8.5, "memory": "80GB"})"),
              HasSubstr("c.json: devices: found 8.5, expected a whole number from 1"));
  EXPECT_THAT(cluster_refusal(R"({"devices": 8, "memory": "80GB", "kind": "tpu"})"),
              HasSubstr("c.json: kind: found \"tpu\", expected \"gpu\" or \"cpu\""));
  EXPECT_THAT(cluster_refusal("[]"), HasSubstr("c.json: found [], expected an object"));
  const auto refused = [](const std::string& more) {
    return cluster_refusal(R"({"devices": 8, "memory": "80GB", )" + more + "}");
  };
  EXPECT_THAT(refused(R"("links": 5)"),
              AllOf(HasSubstr("c.json: links: found 5, expected an object with the keys "),
                    HasSubstr("within_host")));
  EXPECT_THAT(refused(R"("links": {"within_host": 5})"),
              HasSubstr("c.json: links.within_host: found 5, expected a text with a unit, such as "
                        "\"300GB/s\", or an object with bandwidth and latency"));
  EXPECT_THAT(refused(R"("links": {"within_host": {"latency": "1us"}})"),
              HasSubstr("c.json: links.within_host.bandwidth is missing"));
  EXPECT_THAT(refused(R"("links": {"within_host": {"bandwith": "1GB/s"}})"),
              HasSubstr("there is no key \"links.within_host.bandwith\": did you mean bandwidth?"));
  EXPECT_THAT(refused(R"("failures": {})"), HasSubstr("c.json: failures.between is missing"));
  EXPECT_THAT(refused(R"("memroy": null)"), HasSubstr("there is no key \"memroy\""));
  EXPECT_EQ(refused(R"("kind": null, "links": {"within_host": null}, "failures": null)"),
            "no error");
  EXPECT_THAT(error_of([] {
                check({.memory = 1'000'000'000, .reserve = 2'000'000'000, .source = "--gpus"});
              }),
              HasSubstr("--gpus: all of 1.00 GB (953.67 MiB) is kept free"));
  EXPECT_THAT(error_of([] { read_cluster("none.json", "--cluster"); }),
              HasSubstr("--cluster: none.json cannot be read"));
}

TEST(Machines, KnowWhichAxesLeaveAHost) {
  const Machine machine{.hosts = 2, .devices = 8, .memory = 1};
  const MeshShape mesh{.replicate = 2, .shard = 4, .tensor = 2};
  EXPECT_FALSE(machine.leaves_host(Axis::tensor, mesh));
  EXPECT_FALSE(machine.leaves_host(Axis::shard, mesh));
  EXPECT_TRUE(machine.leaves_host(Axis::replicate, mesh));
  EXPECT_TRUE(machine.leaves_host(Axis::shard, {.replicate = 1, .shard = 8, .tensor = 2}));
  EXPECT_FALSE(machine.leaves_host(Axis::replicate, {.replicate = 1, .shard = 8, .tensor = 2}));
}

TEST(Models, AreGivenByNameSizesOrConfig) {
  EXPECT_EQ(model_of("7b").parameter_count(), 6'738'415'616);
  EXPECT_EQ(model_of("Llama-3.1-70B").parameter_count(), 70'553'706'496);
  EXPECT_EQ(model_of("124M").parameter_count(), 124'439'808);
  EXPECT_EQ(model_of("layers=2,width=64,heads=4,context=32,vocabulary=256").layers, 2);
  const DecoderShape small = model_of(
      "family=llama,layers=2,width=64,heads=4,kv_heads=2,intermediate=96,context=32,"
      "vocabulary=256,head=tied");
  EXPECT_EQ(small.kv_heads, 2);
  EXPECT_EQ(small.head, DecoderShape::Head::tied);
  const Scratch folder;
  folder.write("config.json", hf_config_text(small));
  EXPECT_EQ(model_of(folder.path()).parameter_count(), small.parameter_count());
  EXPECT_EQ(model_of(folder.path("config.json")).kv_heads, 2);
}

TEST(Models, ThatAreUnknownAreToldWithTheNearest) {
  const auto refused = [](const char* text) { return error_of([&] { model_of(text); }); };
  EXPECT_THAT(refused("llama-7c"),
              AllOf(HasSubstr("--model: there is no model"), HasSubstr("did you mean llama-7b?")));
  EXPECT_THAT(refused("layer=2,width=64"),
              HasSubstr("the family gpt2 has no key \"layer\": did you mean layers?"));
  EXPECT_THAT(refused("layers=2,width"), HasSubstr("found \"width\" among sizes"));
  EXPECT_THAT(refused("family=llama,layers=2,width=64,head=banana"),
              AllOf(HasSubstr("--model: "), HasSubstr("head: found \"banana\"")));
  EXPECT_THAT(refused("family=llama,layers=2,width=64,qkv_bias=maybe"),
              AllOf(HasSubstr("--model: "), HasSubstr("qkv_bias: found \"maybe\"")));
  EXPECT_THAT(refused("family=mamba,layers=2"), HasSubstr("there is no family \"mamba\""));
  EXPECT_THAT(refused("layers=2,width=65,heads=4"), HasSubstr("model.width is 65"));
  EXPECT_THAT(refused("layers=two"), HasSubstr("layers"));
}

TEST(Models, OfOtherSpellingsAreToldByPublishedNameAndHowToHaveTheHubs) {
  const auto refused = [](const std::string& text) { return error_of([&] { model_of(text); }); };
  for (const auto& [given, meant] : {std::pair("llama3-8b", "llama-3.1-8b"),
                                     {"Llama-3.1-8b-Instruct", "llama-3.1-8b"},
                                     {"meta-llama/Llama-3.1-70B", "llama-3.1-70b"},
                                     {"gpt2-xl", "gpt2-1558m"},
                                     {"openai-community/gpt2", "gpt2-124m"}}) {
    EXPECT_THAT(refused(given),
                AllOf(HasSubstr(fmt::format("did you mean {}?", meant)),
                      HasSubstr(fmt::format("run hf download {} config.json --local-dir FOLDER, "
                                            "and give FOLDER",
                                            given))));
  }
  EXPECT_THAT(refused("mistralai/Mistral-7B-v0.3"),
              AllOf(::testing::Not(HasSubstr("did you mean")), HasSubstr("hf download")));
  EXPECT_THAT(refused("/none/config.json"), ::testing::Not(HasSubstr("hf download")));
}

TEST(Models, AreWithinWhatTheEngineTakesAndSaidOnce) {
  const auto refused = [](const char* text) { return error_of([&] { model_of(text); }); };
  EXPECT_EQ(model_of("layers=256,width=64,heads=4,context=32,vocabulary=256").layers, 256);
  EXPECT_THAT(refused("layers=257,width=64,heads=4,context=32,vocabulary=256"),
              HasSubstr("--model: layers is 257, expected at most 256"));
  EXPECT_THAT(
      refused("layers=2,width=64,heads=4,context=10000001,vocabulary=256"),
      AllOf(HasSubstr("--model: model.context: found 10000001, expected a whole number from 1 to"),
            ::testing::Not(HasSubstr("--set"))));
  EXPECT_THAT(refused("layers=2,layers=3"), HasSubstr("--model: layers is given twice"));
  EXPECT_THAT(refused("layers=null"), HasSubstr("--model: layers is null among sizes"));
}

TEST(Machines, HaveNoMoreDevicesThanArePlanned) {
  Machine machine;
  take_gpus(machine, "128x128", "--gpus");
  EXPECT_EQ(machine.world(), 16'384);
  EXPECT_THAT(error_of([&] { take_gpus(machine, "129x128", "--gpus"); }),
              HasSubstr("--gpus: 129 x 128 (hosts x devices) are 16512 devices, expected at "
                        "most 16384 in all"));
  EXPECT_THAT(cluster_refusal(R"({"hosts": 65536, "devices": 1024, "memory": "80GB"})"),
              HasSubstr("c.json: 65536 x 1024 (hosts x devices) are 67108864 devices"));
}

TEST(JsonFiles, ArePlainAndSmall) {
  const Scratch folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string large = folder.write("large.json", "{}");
  std::filesystem::resize_file(large, (16 << 20) + 1);  // a hole: no disk is taken
  const std::string most = folder.write("most.json", "{}");
  std::filesystem::resize_file(most, 16 << 20);
  EXPECT_EQ(read_json_text(most, "--cluster").size(), 16U << 20);
  const auto cluster_of = [](const std::string& path) {
    return error_of([&] { read_cluster(path, "--cluster"); });
  };
  EXPECT_THAT(cluster_of(pipe), HasSubstr("--cluster: " + pipe + " cannot be read: it is a pipe"));
  EXPECT_THAT(cluster_of("/dev/zero"), HasSubstr("/dev/zero cannot be read: it is a pipe or"));
  EXPECT_THAT(cluster_of(folder.path()), HasSubstr("it is a folder, expected a regular file"));
  EXPECT_THAT(cluster_of(large), HasSubstr("has 16777217 bytes, expected at most 16777216"));
  EXPECT_THAT(cluster_of(folder.write("empty.json", "")), HasSubstr("it is an empty file"));
  for (const std::string& path : {pipe, large, std::string("/dev/zero")}) {
    EXPECT_THAT(error_of([&] { model_of(path); }), HasSubstr("--model: " + path));
    EXPECT_THAT(error_of([&] { read_json_file(path); }), HasSubstr("--config: " + path));
  }
}

}  // namespace
}  // namespace zero::testing
