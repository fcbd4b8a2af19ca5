// SPDX-License-Identifier: Apache-2.0
#include "support/isolation.hpp"

#include "os/descriptor.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::test {
namespace {

constexpr uid_t nobody = 65534;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

void close_proc() {
  // Who may do everything may look everywhere.
  if (geteuid() == 0 && setresuid(nobody, nobody, nobody) != 0) fail("setresuid");
  if (prctl(PR_SET_DUMPABLE, 0) != 0) fail("prctl(PR_SET_DUMPABLE)");
}

bool is_proc_open(pid_t process) {
  return access(fmt::format("/proc/{}/fd/0", process).c_str(), F_OK) == 0;
}

void forbid_sockets() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = static_cast<unsigned short>(std::size(steps)), .filter = steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("prctl(PR_SET_NO_NEW_PRIVS)");
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) fail("prctl(PR_SET_SECCOMP)");
}

void enter_own_namespaces(int flags) {
  if (unshare(CLONE_NEWUSER | flags) != 0) fail("unshare");
}

std::string why_no_namespaces(int flags) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      enter_own_namespaces(flags);
    } catch (const std::system_error& error) {
      _exit(error.code().value());
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int error = WIFEXITED(status) ? WEXITSTATUS(status) : ECANCELED;
  return error == 0 ? "" : fmt::format("unshare: {}", std::strerror(error));
}

}  // namespace tutti::test
