// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace CLI {
class App;
}

/// What is installed beside the program, made from its command line: one place says what options there are.
namespace tutti::perf {

/// The manual page, in the language of man(7): the app's description, its options by groups, its footer,
/// examples.
[[nodiscard]] std::string manual_page(const CLI::App& app);

/// A script that completes operations, options and their values. `shell` is "bash" or "zsh"; throws
/// UsageError for another.
[[nodiscard]] std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace tutti::perf
