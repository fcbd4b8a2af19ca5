// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/processes.hpp"

namespace tutti::perf {
namespace {

class SingleProcess final : public Processes {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] bool are_ranks() const override { return false; }
  void barrier() override {}
  void maximum(std::span<double>) override {}
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) override { return value; }
  void broadcast(std::span<std::byte>) override {}
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
  void together(const std::function<void()>& work, const Release&) override { work(); }
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions&) override {
    return nullptr;
  }
};

}  // namespace

std::unique_ptr<Processes> make_single_process() {
  return std::make_unique<SingleProcess>();
}

}  // namespace tutti::perf
