// SPDX-License-Identifier: Apache-2.0
#include "23_survivors/processes.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <thread>

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace example {

void Meeting::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (mine.size() > MeetingPlace::slot_bytes) throw std::length_error("a message is longer than a slot");
  const int round = place_.round.load();
  auto& slots = place_.slots[static_cast<std::size_t>(round % 2)];
  std::ranges::copy(mine, slots[static_cast<std::size_t>(rank_)].begin());
  if (place_.arrived.fetch_add(1) + 1 == size_) {
    place_.arrived = 0;
    ++place_.round;
  }
  while (place_.round.load() == round) std::this_thread::sleep_for(std::chrono::microseconds(50));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
    std::copy_n(slots[rank].begin(), mine.size(), all.subspan(rank * mine.size()).begin());
}

void* shared_memory(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

int free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const pointer = reinterpret_cast<sockaddr*>(&address);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_bound = bind(socket, pointer, length) == 0 && getsockname(socket, pointer, &length) == 0;
  close(socket);
  if (!is_bound) throw std::runtime_error("no port is free");
  return ntohs(address.sin_port);
}

int run_ranks(int count, const std::function<void(tutti::Exchange& exchange)>& work,
              const std::function<void()>& spare_work) {
  auto& place = *new (shared_memory(sizeof(MeetingPlace))) MeetingPlace{};
  std::vector<pid_t> processes;
  std::fflush(nullptr);
  for (int rank = 0; rank < count + (spare_work ? 1 : 0); ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      int status = 0;
      try {
        if (rank == count) {
          spare_work();
        } else {
          Meeting meeting(place, rank, count);
          work(meeting);
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        status = 1;
      }
      std::fflush(nullptr);
      _exit(status);
    }
    processes.push_back(process);
  }
  int killed = 0;
  bool has_failed = false;
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 1 : 0;
    has_failed = has_failed || (WIFEXITED(status) ? WEXITSTATUS(status) != 0 : WTERMSIG(status) != SIGKILL);
  }
  munmap(&place, sizeof(MeetingPlace));
  if (has_failed) throw std::runtime_error("a rank has failed");
  return killed;
}

}  // namespace example
