// SPDX-License-Identifier: Apache-2.0
#include "os/unshared_descriptor.hpp"

#include <cerrno>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>

namespace tutti {

/// Lists all open ones of the process. Never destroyed.
struct UnsharedDescriptor::OfProcess {
  OfProcess() {
    const int status = pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                                      [] {
                                        for (Descriptor& file : get().files) file.close();
                                        get().mutex.unlock();
                                      });
    if (status != 0) throw std::bad_alloc();
  }
  static OfProcess& get() {
    static auto* const of_process = new OfProcess;
    return *of_process;
  }

  std::mutex mutex;  ///< held while a file is opened and during a fork, so that no fork comes between opening
                     ///< and registering
  Files files;
};

UnsharedDescriptor::UnsharedDescriptor(const Descriptor& file) {
  OfProcess& all = OfProcess::get();
  file_.emplace_back();
  const std::string path = fmt::format("/proc/self/fd/{}", file.number());
  const std::lock_guard lock(all.mutex);
  Descriptor own(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
  const int error = errno;
  file_.front() = all.files.insert(all.files.end(), std::move(own));
  errno = error;
}

UnsharedDescriptor::~UnsharedDescriptor() {
  if (file_.empty()) return;
  OfProcess& all = OfProcess::get();
  const std::lock_guard lock(all.mutex);
  all.files.erase(file_.front());
}

int UnsharedDescriptor::number() const noexcept {
  return file_.empty() ? -1 : file_.front()->number();
}

}  // namespace tutti
