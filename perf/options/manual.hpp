// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace CLI {
class App;
}

/// The page that is installed beside the program is made from its command line: one place says what options
/// there are.
namespace tutti::perf {

/// The manual page, in the language of man(7): the app's description, its options by groups, its footer,
/// examples.
[[nodiscard]] std::string manual_page(const CLI::App& app);

}  // namespace tutti::perf
