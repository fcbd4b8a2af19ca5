// SPDX-License-Identifier: Apache-2.0
// Two processes, one tensor: the first shares memory of a device, the second opens it by the handle that
// comes through a pipe, and both use the same bytes. Nothing is copied but the handle.

#include "tutti/tutti.hpp"

#include <array>
#include <cstddef>
#include <iostream>
#include <span>

#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int length = 1 << 16;

/// A pipe: one process writes, the other reads.
struct Pipe {
  Pipe() { is_open = pipe(ends.data()) == 0; }
  bool send(std::span<const std::byte> bytes) const {
    return write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  }
  /// How many bytes came, as sent.
  std::size_t receive(std::span<std::byte> bytes) const {
    const ssize_t count = read(ends[0], bytes.data(), bytes.size());
    return count < 0 ? 0 : static_cast<std::size_t>(count);
  }
  std::array<int, 2> ends{};
  bool is_open = false;
};

int open_and_answer(const Pipe& handles, const Pipe& answers) {
  std::array<std::byte, 4096> handle{};
  const std::size_t bytes = handles.receive(handle);
  const tutti::Tensor theirs = tutti::open_shared_tensor(std::span(handle).first(bytes));
  std::cout << "the second process reads " << theirs.to_vector<float>().front() << ", and writes 2"
            << std::endl;
  theirs.fill_(2);
  tutti::synchronize(theirs.device());  // processes order their accesses themselves
  const std::byte done{1};
  return answers.send(std::span(&done, 1)) ? 0 : 1;
}

int share_and_read(const Pipe& handles, const Pipe& answers) {
  const tutti::Tensor tensor = tutti::full({length}, 1, {.device = 0});
  const tutti::SharedTensor shared(tensor);  // waits until the tensor is filled
  std::byte done{};
  if (!handles.send(shared.handle()) || answers.receive(std::span(&done, 1)) != 1) return 1;
  const float last = tensor.to_vector<float>().back();
  std::cout << "the first process finds " << last << '\n';
  return last == 2 ? 0 : 1;
}

}  // namespace

int main() {
  const Pipe handles;
  const Pipe answers;
  if (!handles.is_open || !answers.is_open) return 1;
  const pid_t child = fork();  // before devices are used: their work does not survive in a child
  if (child < 0) return 1;
  if (child == 0) {
    // A process that ends early is an answer too: the other one reads nothing.
    close(answers.ends[0]);
    close(handles.ends[1]);
    return open_and_answer(handles, answers);
  }
  close(answers.ends[1]);
  close(handles.ends[0]);
  const int result = share_and_read(handles, answers);
  close(handles.ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? result : 1;
}
