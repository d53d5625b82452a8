// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <iterator>
#include <string>

namespace zero::testing {

/// A terminal on which somebody has typed a text, and then ended the input.
class Typed {
 public:
  explicit Typed(const std::string& text) : terminal_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    const std::string typed = text + "\x04";
    const bool good = terminal_ >= 0 && ::grantpt(terminal_) == 0 && ::unlockpt(terminal_) == 0;
    if (good) path_ = ::ptsname(terminal_);
    other_end_ = good ? ::open(path_.c_str(), O_RDWR | O_NOCTTY) : -1;
    EXPECT_GE(other_end_, 0);
    EXPECT_EQ(::write(terminal_, typed.data(), typed.size()), std::ssize(typed));
  }
  ~Typed() {
    ::close(other_end_);
    ::close(terminal_);
  }
  Typed(const Typed&) = delete;
  Typed& operator=(const Typed&) = delete;
  const std::string& path() const { return path_; }

 private:
  int terminal_;
  int other_end_ = -1;  // open, so that what was typed stays
  std::string path_;
};

}  // namespace zero::testing
