// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// How every page of a program begins, by which it is told from other files.
std::string page_mark(std::string_view program);
/// A page of a program that needs no network, up to its first heading. `style` follows that of all
/// pages: their text, tables and charts, on light paper and on dark. What is drawn has the colour
/// --of of its class.
std::string page_begin(std::string_view program, std::string_view title, std::string_view heading,
                       std::string_view style);
/// Text of a file or a user as text of a page, or of an attribute.
std::string html_text(std::string_view text);

}  // namespace zero
