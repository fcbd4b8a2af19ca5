// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/collectives/bad_input.hpp"
#include "tutti/communicator.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tutti::test::ranks {

using Row = std::vector<Tensor>;

/// A call's tensors, a row for each local member that has some.
struct Operands {
  std::vector<Row> inputs;
  std::vector<Row> out;
};

/// Names one of the operands.
struct Place {
  std::string argument;  ///< as messages name it
  std::vector<Row> Operands::*side;
  std::size_t member = 0;  ///< local member, and the device's index
  std::size_t index = 0;   ///< in its row

  [[nodiscard]] Tensor& in(Operands& operands) const { return (operands.*side)[member][index]; }
};

/// A list of one entry per local member.
struct MemberList {
  std::string argument;
  std::vector<Row> Operands::*side;
};

/// A method of a communicator of devices 0 and 1, with operands that are right.
struct Method {
  std::string name;
  std::string function;
  std::vector<std::vector<Sizes>> inputs;
  std::vector<std::vector<Sizes>> out;
  /// Operands that messages blame if they differ from others, whose element type they must have.
  std::vector<Place> inputs_to_spoil;
  std::vector<Place> outputs_to_spoil;
  std::vector<MemberList> lists;
  int root;  ///< -1: none
  std::function<void(Communicator&, const Operands&, int root, StreamList streams)> call;

  /// Makes the operands, all float32.
  [[nodiscard]] Operands operands(Scene& scene) const;
};
std::ostream& operator<<(std::ostream& stream, const Method& method);

[[nodiscard]] const std::vector<Method>& methods();

}  // namespace tutti::test::ranks
