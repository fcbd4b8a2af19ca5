// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <sys/types.h>

/// Ways in which a process cuts itself off from others. None can be undone.
namespace tutti::test {

/// From now on it may not look into other processes of its kind by /proc, nor may they look into it: as where
/// users or user namespaces are different, or programs may not be read.
void close_proc();
/// Whether the files of `process` can be opened by /proc.
[[nodiscard]] bool is_proc_open(pid_t process);

/// From now on it gets no sockets.
void forbid_sockets();

/// Namespaces of its own for users, and with `flags` for more, `CLONE_NEWNET` for instance. Throws
/// std::system_error where that is not allowed.
void enter_own_namespaces(int flags);
/// Why that is not allowed, empty if it is; tried by a child.
[[nodiscard]] std::string why_no_namespaces(int flags);

}  // namespace tutti::test
