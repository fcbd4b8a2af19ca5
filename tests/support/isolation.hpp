// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <sys/types.h>

/// Cuts the calling process off from others. None of these functions can be undone.
namespace tutti::test {

/// Closes /proc between this process and others of its user: neither may look into the other, as if their
/// users or user namespaces were different, or their programs could not be read.
void close_proc();
/// Returns whether the files of `process` can be opened by /proc.
[[nodiscard]] bool is_proc_open(pid_t process);

/// Makes the creation of sockets fail from now on.
void forbid_sockets();

/// Moves the process into its own user namespace, and with `flags` into others, for instance `CLONE_NEWNET`.
/// Throws std::system_error if that is not allowed.
void enter_own_namespaces(int flags);
/// Returns the reason why that is not allowed, empty if it is; a child tries it.
[[nodiscard]] std::string why_no_namespaces(int flags);

}  // namespace tutti::test
