#pragma once

#include <sys/types.h>

namespace tutti::transport::ranks {

/// Another process of this host, which may end at any time.
class PeerProcess {
 public:
  /// None: it is never gone.
  PeerProcess() = default;
  explicit PeerProcess(pid_t process) noexcept;
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();

  [[nodiscard]] bool is_gone() const noexcept;

 private:
  pid_t process_ = 0;
  int descriptor_ = -1;  ///< tells when the process ends, whoever has its number then; -1 if there is none
};

}  // namespace tutti::transport::ranks
