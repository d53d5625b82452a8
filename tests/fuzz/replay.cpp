// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The program around a fuzz target in builds without libFuzzer: replays the kept inputs and a few
// thousand changes of them, the same in every run.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace zero::fuzz {
namespace {

constexpr int kChanged = 3000;
constexpr std::size_t kLongest = 1 << 14;

// What readers count with, at and beyond its limits.
constexpr const char* kPieces[] = {"-1",
                                   "0",
                                   "1e999",
                                   "4611686018427387904",
                                   "9223372036854775807",
                                   "18446744073709551616",
                                   "null",
                                   "true",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   "\"",
                                   ",",
                                   ":",
                                   "../",
                                   "/",
                                   "\\u0000",
                                   "auto"};

class Changes {
 public:
  explicit Changes(const std::vector<std::string>& kept) : kept_(kept) {}

  std::string next() {
    std::string input = kept_[below(kept_.size())];
    for (std::size_t i = 1 + below(4); i > 0; --i) change(input);
    if (input.size() > kLongest) input.resize(kLongest);
    return input;
  }

 private:
  // Not std::uniform_int_distribution, whose numbers differ between libraries.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_()) % count; }
  std::size_t place(const std::string& input) { return below(input.size() + 1); }

  void change(std::string& input) {
    switch (below(6)) {
      case 0:
        if (!input.empty()) input[below(input.size())] ^= static_cast<char>(1U << below(8));
        break;
      case 1:
        if (!input.empty()) input[below(input.size())] = static_cast<char>(below(256));
        break;
      case 2:
        input.erase(std::min(place(input), input.size()), below(9));
        break;
      case 3:
        input.insert(place(input), kPieces[below(std::size(kPieces))]);
        break;
      case 4:
        put_piece_for_number(input);
        break;
      default: {
        const std::string& other = kept_[below(kept_.size())];
        const std::size_t from = below(other.size() + 1);
        input.insert(place(input), other.substr(from, below(64)));
      }
    }
  }

  // Most changes elsewhere make no JSON: a number's keep it one.
  void put_piece_for_number(std::string& input) {
    const std::size_t begin = input.find_first_of("0123456789", place(input));
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
    input.replace(begin, end - begin, kPieces[below(6)]);
  }

  const std::vector<std::string>& kept_;
  std::mt19937_64 random_{20260101};
};

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The input lies in the file `last` while it is read, for what ends the program at once.
void read(const std::string& input, const std::string& name, const std::string& last) {
  std::ofstream(last, std::ios::binary) << input;
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  } catch (const std::exception& error) {
    std::cerr << name << ": an exception other than zero::Error: " << error.what()
              << "; the input is " << last << "\n";
    std::exit(1);
  }
}

int replay(const std::string& corpus, const std::string& last) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> kept;
  for (const auto& path : paths) {
    kept.push_back(bytes_of(path));
    read(kept.back(), path.string(), last);
  }
  expect(!kept.empty(), "the folder of kept inputs has some");
  Changes changes(kept);
  for (int i = 0; i < kChanged; ++i) read(changes.next(), "change " + std::to_string(i), last);
  std::filesystem::remove(last);
  std::cout << kept.size() << " kept inputs and " << kChanged << " changes were read or refused\n";
  return 0;
}

}  // namespace
}  // namespace zero::fuzz

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " CORPUS FILE_OF_THE_LAST_INPUT\n";
    return 2;
  }
  return zero::fuzz::replay(argv[1], argv[2]);
}
