// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// Figures with units, as people write them. GB is 10^9 bytes and GiB 2^30; a figure without its
/// unit is refused, because the two differ by 7 %.

/// "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB".
std::string byte_units();
/// The bytes of "80GB", "16 GiB" or "1.5MiB"; nothing if `text` is none, or less than 1 or more
/// than 2^60.
std::optional<std::int64_t> size_in_bytes(std::string_view text);
/// size_in_bytes(), which must be some. Throws zero::Error with `place` ("--memory", "c.json:
/// memory"), found and expected.
std::int64_t bytes_with_unit(std::string_view text, std::string_view place);
/// bytes_with_unit(), or 0 of any unit.
std::int64_t bytes_or_none(std::string_view text, std::string_view place);
/// "450GB/s", "25 GB/s", "200Gbit/s": bytes a second.
double link_rate(std::string_view text, std::string_view place);
/// "989TFLOP/s", "1.2 PFLOP/s": floating-point operations a second.
double compute_rate(std::string_view text, std::string_view place);

/// "5us", "30 s", "10min", "3000h": seconds.
double seconds_with_unit(std::string_view text, std::string_view place);

/// "42 s", "3 min 07 s", "2 h 05 min", "3 d 04 h".
std::string duration_text(double seconds);
/// "512 B", "1.50 MiB", "12.3 GiB".
std::string bytes_text(double bytes);
inline std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }
/// "950", "12.3k", "4.56M", "7.89P".
std::string count_text(double count);

/// "107.81 GB (100.41 GiB)".
std::string both_units(double bytes);
/// "107.81 GB".
std::string decimal_text(double bytes);

}  // namespace zero
