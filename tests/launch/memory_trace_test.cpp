// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launch/memory/memory_line.h"
#include "launch/memory/memory_picture.h"
#include "launch/memory/memory_report.h"
#include "launch/memory/memory_series.h"
#include "launch/memory/memory_text.h"
#include "launch/memory/memory_trace_file.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kKiB = 1024;

/// Writes a trace as a run does, one line a call.
class WrittenTrace {
 public:
  explicit WrittenTrace(const std::string& path, std::int64_t most = std::int64_t{1} << 20)
      : file_({.path = path, .most_bytes = most}) {
    file_.begin({{"parameters/h.1", 40 * kKiB}}, 1000 * kKiB);
    total_ = 40 * kKiB;
    file_.units({"h", "h.1", "h.10"});
  }

  void event(std::int64_t step, const char* phase, MemoryClass c, const char* label,
             std::int64_t bytes) {
    total_ += bytes;
    file_.write({seconds_ += 0.001, step, phase}, {c, label, bytes, total_});
  }
  void place(std::int64_t step, const char* phase) {
    file_.write({seconds_ += 0.001, step, phase});
  }
  /// Activations come and go, and `leak` bytes stay.
  void step(std::int64_t step, std::int64_t leak) {
    event(step, "forward", MemoryClass::activations, "a \"b\" <c>", 100 * kKiB);
    event(step, "backward", MemoryClass::activations, "a \"b\" <c>", -100 * kKiB);
    if (leak > 0) event(step, "update", MemoryClass::optimizer, "h.10.moment", leak);
  }
  void end() { file_.end(seconds_ += 0.001); }

 private:
  MemoryTraceFile file_;
  std::int64_t total_ = 0;
  double seconds_ = 0;
};

TEST(MemoryTraces, ALeakOfAKibibyteAStepIsNamedAfterTwentySteps) {
  const Scratch folder;
  const std::string path = folder.path("m");
  {
    WrittenTrace trace(path);
    for (int step = 1; step <= 20; ++step) trace.step(step, kKiB);
    trace.end();
  }
  const auto leaks = memory_report::leaks(read_memory(path), kKiB);
  EXPECT_TRUE(leaks.found);
  EXPECT_THAT(leaks.text, AllOf(HasSubstr("optimizer h.10.moment (unit h.10), 1.00 KiB a step"),
                                HasSubstr("steps 1 to 20"), Not(HasSubstr("activations")),
                                Not(HasSubstr("parameters"))));
}

TEST(MemoryTraces, WhatComesAndGoesIsNoLeakNorIsAWarmUp) {
  const Scratch folder;
  const std::string path = folder.path("m");
  {
    WrittenTrace trace(path);
    for (int step = 1; step <= 40; ++step) trace.step(step, step <= 2 ? 64 * kKiB : 0);
    trace.end();
  }
  const auto leaks = memory_report::leaks(read_memory(path), 1);
  EXPECT_FALSE(leaks.found) << leaks.text;
  EXPECT_THAT(leaks.text, HasSubstr("nothing kept growing by 1 B or more"));
}

TEST(MemoryTraces, ThePeakHasItsStepPhaseAndLabels) {
  const Scratch folder;
  const std::string path = folder.path("m");
  {
    WrittenTrace trace(path);
    trace.step(1, 10 * kKiB);
    trace.step(2, 10 * kKiB);
    trace.end();
  }
  const MemorySeries series = read_memory(path);
  const MemoryPeak peak = peak_of(series);
  EXPECT_EQ(peak.total, (40 + 10 + 100) * kKiB);  // in the second forward
  const auto& place = series.places.at(static_cast<std::size_t>(peak.place));
  EXPECT_EQ(place.step, 2);
  EXPECT_EQ(place.phase, "forward");
  EXPECT_EQ(peak.state.by_label(series), (BytesByLabel{{"activations/a \"b\" <c>", 100 * kKiB},
                                                       {"optimizer/h.10.moment", 10 * kKiB},
                                                       {"parameters/h.1", 40 * kKiB}}));
  EXPECT_EQ(unit_of("a \"b\" <c>", series.units), "");
  EXPECT_EQ(unit_of("h.1", series.units), "h.1");
  EXPECT_EQ(unit_of("h.10.moment", series.units), "h.10");
  EXPECT_EQ(end_of(series).total, 60 * kKiB);
  EXPECT_THAT(memory_report::summary(series, 9),
              AllOf(HasSubstr("peak of the sum: 150.00 KiB, at step 2, forward"),
                    HasSubstr("of 1000.00 KiB of the device: 15.0 %")));
}

/// Writes `count` steps, and what a run that has ended gives back: all it holds.
void write_ended(const std::string& path, int count, std::int64_t leak) {
  WrittenTrace trace(path);
  for (int step = 1; step <= count; ++step) trace.step(step, leak);
  trace.place(count, "end");
  trace.event(count, "end", MemoryClass::optimizer, "h.10.moment", -count * leak);
  trace.event(count, "end", MemoryClass::parameters, "h.1", -40 * kKiB);
  trace.end();
}

TEST(MemoryTraces, EndBeforeTheRunGivesItsMemoryBack) {
  const Scratch folder;
  write_ended(folder.path("a"), 20, kKiB);
  write_ended(folder.path("b"), 20, 3 * kKiB);
  const MemorySeries a = read_memory(folder.path("a"));
  EXPECT_EQ(end_of(a).total, (40 + 20) * kKiB);
  EXPECT_EQ(moments_of(a).back().memory.total, (40 + 20) * kKiB);
  EXPECT_TRUE(memory_report::leaks(a, kKiB).found);
  const std::string summary = memory_report::summary(a, 9);
  EXPECT_THAT(summary, ContainsRegex("sum +159.00 KiB +60.00 KiB"));  // 40 + 19 + 100
  EXPECT_THAT(summary, ContainsRegex("\n +bytes  class, label \\(its unit\\)\n +100.00 KiB  act"));
  const std::string difference = memory_report::difference(a, read_memory(folder.path("b")), 9);
  EXPECT_THAT(difference, HasSubstr("B - A: +38.00 KiB at the peaks, +40.00 KiB at the ends"));
  EXPECT_THAT(difference, ContainsRegex("differ at the peaks, 1 of 1\n +B - A  class, label "
                                        "\\(its unit\\)\n +\\+38.00 KiB  optimizer h.10.moment"));
  EXPECT_THAT(difference,
              ContainsRegex("differ at the ends, 1 of 1\n.*\n +\\+40.00 KiB  optimizer"));
}

TEST(MemoryTraces, ThatBeginAtTheEndStillHaveWhatIsChargedThere) {
  MemorySeries series;
  series.labels = {{.memory_class = MemoryClass::other, .name = "x"}};
  series.places = {{.seconds = 7, .step = 9, .phase = "end"}};
  series.changes = {{.seconds = 7, .place = 0, .label = 0, .bytes = 10},
                    {.seconds = 8, .place = 0, .label = 0, .bytes = -10}};
  EXPECT_EQ(end_of(series).total, 10);
}

TEST(MemoryTraces, ALongTraceStaysBoundedAndKeepsItsNewestHalf) {
  const Scratch folder;
  const std::string path = folder.path("m");
  constexpr std::int64_t kMost = std::int64_t{1} << 16;
  {
    WrittenTrace trace(path, kMost);
    for (int step = 1; step <= 2000; ++step) trace.step(step, kKiB);
    trace.end();
  }
  const auto size = [](const std::string& file) {
    return static_cast<std::int64_t>(std::filesystem::file_size(file));
  };
  EXPECT_LE(size(path) + size(earlier_part(path)), kMost);
  EXPECT_GT(size(earlier_part(path)), kMost / 4);
  const MemorySeries series = read_memory(path);
  EXPECT_EQ(series.places.back().step, 2000);
  EXPECT_GT(series.places.front().step, 1);
  EXPECT_EQ(end_of(series).total, (40 + 2000) * kKiB);  // what was dropped still counts
  EXPECT_TRUE(memory_report::leaks(series, kKiB).found);
  std::filesystem::remove(earlier_part(path));  // the newest part is readable alone
  EXPECT_EQ(end_of(read_memory(path)).total, (40 + 2000) * kKiB);
}

TEST(MemoryTraces, ABrokenTraceIsAnErrorWithItsLine) {
  const Scratch folder;
  const std::string path = folder.path("m");
  {
    WrittenTrace trace(path);
    trace.step(1, kKiB);
    trace.end();
  }
  const std::string whole = folder.read("m");
  const auto error_with = [&](const std::string& text) {
    folder.write("m", text);
    return error_of([&] { read_memory(path); });
  };
  // Lines: head, charged, units, forward, backward, update, end.
  EXPECT_EQ(error_with(whole), "no error");
  EXPECT_THAT(error_with(whole.substr(0, whole.size() - 5)),
              HasSubstr(path + ":7: the line is cut"));
  const std::size_t fifth = whole.find("\"phase\":\"backward\"");
  std::string other = whole;
  other.replace(other.find("-102400", fifth), 7, "-102401");
  EXPECT_THAT(error_with(other),
              AllOf(HasSubstr(path + ":5: bytes"), HasSubstr("but the label holds 102400 bytes")));
  other = whole;
  other.erase(other.rfind('\n', fifth) + 1, other.find('\n', fifth) - other.rfind('\n', fifth));
  EXPECT_THAT(error_with(other), AllOf(HasSubstr(path + ":5: total: found 41984"),
                                       HasSubstr("the lines before and this one sum to 144384")));
  EXPECT_THAT(error_with("{\"memory_trace\":2}\n"), HasSubstr(":1: memory_trace: found version 2"));
  EXPECT_THAT(error_with("{\"memory_trace\":1\n"), HasSubstr(":1: is not a JSON object"));
  EXPECT_THAT(error_with(""), HasSubstr("is empty, expected a trace"));
  EXPECT_THAT(error_of([&] { read_memory(folder.path()); }), HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { read_memory(folder.path("none")); }), HasSubstr("No such file"));
}

TEST(MemoryTraces, HaveAnEventOnceItIsWritten) {
  const Scratch folder;
  const std::string path = folder.path("m");
  const auto device = cpu::open();
  const Buffer before = device->allocate(256, DType::fp32, MemoryClass::parameters, "h.0");
  MemoryTraceFile file({.path = path});
  file.begin(device->ledger().snapshot().labels, 0);
  MemoryPlace place{.phase = "setup"};
  device->ledger().observe([&](const MemoryEvent& event) { file.write(place, event); });
  file.units({"h.0"});
  for (int step = 1; step <= 3; ++step) {
    place = {0.001 * step, step, "forward"};
    file.write(place);
    const Buffer kept = device->allocate(100, DType::fp32, MemoryClass::activations, "kept");
    EXPECT_EQ(end_of(read_memory(path)).total, 1024 + 400) << "the run may be killed here";
    place.phase = "backward";
  }
  device->ledger().observe({});
  EXPECT_FALSE(read_memory(path).whole);
  file.end(1);
  const MemorySeries series = read_memory(path);
  EXPECT_TRUE(series.whole);
  ASSERT_EQ(series.changes.size(), 1U + 3 * 2);
  EXPECT_EQ(series.places.back().step, 3);
  EXPECT_EQ(series.places.back().phase, "backward");
  EXPECT_EQ(end_of(series).total, 1024);
}

TEST(MemoryLines, HaveThePeakSinceTheLineBefore) {
  MemoryLine line{.now = {1024}, .peak = {1024}, .total = 1024, .peak_total = 1024};
  line.add({MemoryClass::activations, "kept", 400, 1424});
  line.add({MemoryClass::activations, "kept", -400, 1024});
  EXPECT_EQ(line.json(), nlohmann::ordered_json::parse(R"({
      "parameters": {"now": 1024, "peak": 1024}, "activations": {"now": 0, "peak": 400},
      "total": 1024, "peak": 1424, "reserved": 0})"));
}

TEST(MemoryTraces, WithMoreBytesThanAMachineHasAreRefused) {
  const Scratch folder;
  std::string charged;
  for (int i = 0; i < 9; ++i) {
    charged += fmt::format("{}{{\"class\":\"other\",\"label\":\"{}\",\"bytes\":{}}}",
                           i == 0 ? "" : ",", i, std::int64_t{1} << 60);
  }
  folder.write("m",
               "{\"memory_trace\":1,\"run\":1,\"rank\":0,\"ranks\":1,\"device_bytes\":0}\n"
               "{\"t\":0,\"step\":0,\"phase\":\"setup\",\"charged\":[" +
                   charged + "]}\n");
  EXPECT_THAT(error_of([&] { read_memory(folder.path("m")); }),
              HasSubstr("bytes: found 1152921504606846976, expected at most 0"));
}

TEST(MemoryTraces, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(error_of([] { MemoryTraceFile({.path = "/nonexistent/m"}); }),
              HasSubstr("run.memory_trace: cannot write /nonexistent/m"));
}

/// The names of the elements that are open at the end of a page; throws if one closes another.
std::vector<std::string> open_elements(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    ZERO_CHECK(end != std::string_view::npos, "an element without an end at {}", at);
    const std::string_view element = page.substr(at + 1, end - at - 1);
    if (element.starts_with('!') || element.ends_with('/')) continue;
    const std::string name(element.substr(0, element.find(' ')));
    if (!name.starts_with('/')) {
      open.push_back(name);
      continue;
    }
    ZERO_CHECK(!open.empty() && "/" + open.back() == name, "{} closes {}", name,
               open.empty() ? "nothing" : open.back());
    open.pop_back();
  }
  return open;
}

TEST(MemoryPictures, AreWellFormedAndNeedNoNetwork) {
  const Scratch folder;
  const std::string path = folder.path("m");
  {
    WrittenTrace trace(path);
    for (int step = 1; step <= 5; ++step) trace.step(step, kKiB);
    trace.end();
  }
  save_memory_picture(read_memory(path), 10, folder.path("m.html"));
  const std::string page = folder.read("m.html");
  EXPECT_TRUE(open_elements(page).empty());
  EXPECT_THAT(
      page, AllOf(HasSubstr("<path class=\"activations\""), HasSubstr("prefers-color-scheme: dark"),
                  HasSubstr("a &quot;b&quot; &lt;c&gt;"), HasSubstr("step 5, forward")));
  EXPECT_THAT(page,
              AllOf(Not(HasSubstr("http")), Not(HasSubstr("<script")), Not(HasSubstr("url("))));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"m", "m.html"}));
  EXPECT_THAT(error_of([&] { save_memory_picture(read_memory(path), 1, "/nonexistent/p.html"); }),
              HasSubstr("/nonexistent/p.html"));
}

TEST(MemoryPictures, ReplaceNothingButPictures) {
  const Scratch folder;
  const std::string path = folder.path("m");
  write_ended(path, 2, kKiB);
  const MemorySeries series = read_memory(path);
  const std::string trace = folder.read("m");
  std::filesystem::create_symlink(path, folder.path("link"));
  for (const char* input : {"m", "link"}) {
    EXPECT_THAT(error_of([&] { save_memory_picture(series, 9, folder.path(input)); }),
                HasSubstr("--html: " + folder.path(input) + " is what the picture is drawn from"));
  }
  folder.write("notes", "<!DOCTYPE html>\n<html lang=\"en\">\n");
  EXPECT_THAT(error_of([&] { save_memory_picture(series, 9, folder.path("notes")); }),
              HasSubstr("notes exists and is no picture of zero_memory"));
  EXPECT_EQ(folder.read("m"), trace);
  EXPECT_EQ(folder.read("notes"), "<!DOCTYPE html>\n<html lang=\"en\">\n");
  save_memory_picture(series, 9, folder.path("p"));
  const std::string page = folder.read("p");
  save_memory_picture(series, 1, folder.path("p"));  // an earlier picture
  EXPECT_LT(folder.read("p").size(), page.size());
}

TEST(MemoryPictures, AColumnHasTheLargestSumOfItsTime) {
  MemorySeries series;
  series.labels = {{.memory_class = MemoryClass::other, .name = "x"}};
  series.places = {{.seconds = 0, .step = 0, .phase = "setup"},
                   {.seconds = 5, .step = 1, .phase = "forward"}};
  // A peak of a moment in the fourth of ten columns.
  series.changes = {{.seconds = 0, .place = 0, .label = 0, .bytes = 10},
                    {.seconds = 3.2, .place = 0, .label = 0, .bytes = 90},
                    {.seconds = 3.3, .place = 0, .label = 0, .bytes = -95},
                    {.seconds = 10, .place = 1, .label = 0, .bytes = 1}};
  const auto columns = picture_columns(series, 10);
  ASSERT_EQ(columns.size(), 10U);
  const std::vector<std::int64_t> expected{10, 10, 10, 100, 5, 5, 5, 5, 5, 6};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(columns[i].total, expected[i]) << i;
    EXPECT_EQ(columns[i].place, i < 5 ? 0 : 1) << i;
  }
}

}  // namespace
}  // namespace zero::testing
