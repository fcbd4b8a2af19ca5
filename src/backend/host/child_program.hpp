// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::backend::host {

/// How a program that was run has ended.
struct ChildEnd {
  int start_error = 0;        ///< why it could not be started, an errno; 0 if it was
  std::optional<int> status;  ///< as `waitpid` gives it; nothing if the system does not tell
  std::string output;         ///< the beginning of what it printed
};

/// Runs a program, named by a path or as PATH finds it, and waits for its end. Thread-safe.
///
/// It gets the environment without the variables that begin with "TUTTI_", one of which is a secret, and
/// files that are open without O_CLOEXEC; its messages are in English, no signal is blocked, and SIGCHLD,
/// SIGPIPE and SIGXFSZ are not ignored. Its input is empty. The system does not tell how it ended where the
/// process ignores SIGCHLD, or waits for all its children.
[[nodiscard]] ChildEnd run_program(const std::vector<std::string>& words);

}  // namespace tutti::backend::host
