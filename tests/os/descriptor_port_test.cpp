// SPDX-License-Identifier: Apache-2.0
#include "os/descriptor_port.hpp"

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

TEST(DescriptorPorts, OfAParentLeaveItsChildsThreadsAlone) {
  std::shared_ptr<DescriptorPort> port = DescriptorPort::get();
  const pid_t child = fork();
  if (child == 0) {
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
  EXPECT_EQ(status, 0) << "the thread has been detached";
}

}  // namespace
}  // namespace tutti
