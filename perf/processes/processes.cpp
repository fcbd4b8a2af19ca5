// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/processes.hpp"

#include <algorithm>

namespace tutti::perf {
namespace {

class SingleProcess final : public Processes {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] bool are_ranks() const override { return false; }
  void barrier() override {}
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
  void together(const std::function<void()>& work, const Release&) override { work(); }
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions&) override {
    return nullptr;
  }
};

}  // namespace

double Processes::largest(double value) {
  double largest = value;
  for (const auto& of_rank : gather_values<double>({&value, 1}, *this))
    largest = std::max(largest, of_rank.front());
  return largest;
}

std::uint64_t Processes::sum(std::uint64_t value) {
  std::uint64_t sum = 0;
  for (const auto& of_rank : gather_values<std::uint64_t>({&value, 1}, *this)) sum += of_rank.front();
  return sum;
}

std::unique_ptr<Processes> make_single_process() {
  return std::make_unique<SingleProcess>();
}

}  // namespace tutti::perf
