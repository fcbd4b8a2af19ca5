// SPDX-License-Identifier: Apache-2.0
#include "os/descriptor_port.hpp"

#include "tutti/error.hpp"

#include <cstdint>
#include <memory>

#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

/// The port by which a process passes descriptors on.
namespace tutti {
namespace {

void* wait_for(void* semaphore) {
  sem_wait(static_cast<sem_t*>(semaphore));
  return nullptr;
}

/// Waits until the port's thread serves. Until then it allocates, and the allocator of the address sanitizer
/// stays locked for ever in a child that is forked meanwhile.
void wait_until_it_serves(const DescriptorPort& port) {
  constexpr std::uint64_t nothing = 0;
  EXPECT_THROW(static_cast<void>(DescriptorPort::fetch(port.address(), nothing)), Error);
}

TEST(DescriptorPorts, OfAParentLeaveItsChildsThreadsAlone) {
  std::shared_ptr<DescriptorPort> port = DescriptorPort::get();
  wait_until_it_serves(*port);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // ends it, should it wait for the port's thread
    sem_t end{};
    sem_init(&end, 0, 0);
    pthread_t thread{};  // runs on the stack that the port's thread has in the parent
    if (pthread_create(&thread, nullptr, &wait_for, &end) != 0) _exit(-1);
    port.reset();
    sem_post(&end);
    _exit(pthread_join(thread, nullptr));
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the thread has been detached, or waited for";
}

}  // namespace
}  // namespace tutti
