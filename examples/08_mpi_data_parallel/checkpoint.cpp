// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.hpp"

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace {

// As text, but to the last bit.
void write(std::ostream& stream, const std::vector<float>& values) {
  stream << values.size();
  for (const float value : values) stream << ' ' << std::bit_cast<std::uint32_t>(value);
  stream << '\n';
}

std::vector<float> read(std::istream& stream) {
  std::size_t count = 0;
  std::vector<float> values;
  std::uint32_t bits = 0;
  stream >> count;
  while (values.size() < count && stream >> bits) values.push_back(std::bit_cast<float>(bits));
  return values;
}

}  // namespace

void save(const Checkpoint& checkpoint, const std::string& file) {
  const std::string unfinished = file + ".new";
  std::ofstream stream(unfinished);
  stream << checkpoint.step << '\n';
  write(stream, checkpoint.weights);
  write(stream, checkpoint.bias);
  stream.close();
  if (!stream) throw std::runtime_error("cannot write " + unfinished);
  std::filesystem::rename(unfinished, file);
}

Checkpoint load(const std::string& file) {
  std::ifstream stream(file);
  Checkpoint checkpoint;
  stream >> checkpoint.step;
  checkpoint.weights = read(stream);
  checkpoint.bias = read(stream);
  if (!stream) throw std::runtime_error("cannot read a checkpoint from " + file);
  return checkpoint;
}
