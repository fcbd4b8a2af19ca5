// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Parts that do not add up to the whole, where one process has them all and can tell by itself; and sizes of
/// parts that no call could have.
namespace tutti::test::ranks {
namespace {

enum class Direction { scatter, gather };

BadCall sizes(const std::string& name, Direction direction, const Sizes& whole,
              const std::vector<Sizes>& parts, Placement placement = Placement::contiguous) {
  return {name,
          [=](Scene& scene) -> CommunicatorCall {
            const Tensor all = scene.tensor(whole, 0, DType::float32, placement);
            Row own;
            for (std::size_t i = 0; i < parts.size(); ++i)
              own.push_back(scene.tensor(parts[i], static_cast<int>(i), DType::float32, placement));
            return [=](Communicator& communicator) {
              if (direction == Direction::scatter) {
                communicator.scatter(all, own, 0);
              } else {
                communicator.gather(own, all, 0);
              }
            };
          },
          {direction == Direction::scatter ? "scatter" : "gather", "out", "expected"}};
}

std::vector<BadCall> sizes_that_do_not_add_up() {
  return {
      sizes("ScatterOfMoreThanThePartsHold", Direction::scatter, {8, 6}, {{4, 6}, {3, 6}}),
      sizes("ScatterOfLessThanThePartsHold", Direction::scatter, {8, 6}, {{4, 6}, {5, 6}}),
      sizes("ScatterOfNoRows", Direction::scatter, {0, 6}, {{0, 6}, {1, 6}}),
      sizes("ScatterWithGaps", Direction::scatter, {8, 6}, {{4, 6}, {3, 6}}, Placement::gapped),
      sizes("GatherIntoTooFewRows", Direction::gather, {8, 6}, {{4, 6}, {5, 6}}),
      sizes("GatherIntoTooManyRows", Direction::gather, {8, 6}, {{4, 6}, {3, 6}}),
      sizes("GatherWithGaps", Direction::gather, {8, 6}, {{4, 6}, {3, 6}}, Placement::gapped),
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorSizes, sizes_that_do_not_add_up);

using SizesOfAll = std::vector<Sizes>;

/// all_to_all of 24 elements each, by these sizes.
BadCall exchange(const std::string& name, const SizesOfAll& input_sizes, const SizesOfAll& out_sizes,
                 std::vector<std::string> message) {
  message.emplace_back("all_to_all: ");
  return {name,
          [=](Scene& scene) -> CommunicatorCall {
            const Row inputs{scene.tensor({24}, 0), scene.tensor({4, 6}, 1)};
            const Row out{scene.tensor({4, 6}, 0), scene.tensor({24}, 1)};
            return [=](Communicator& communicator) {
              communicator.all_to_all(inputs, out, input_sizes, out_sizes);
            };
          },
          std::move(message)};
}

std::vector<BadCall> sizes_of_exchanges() {
  const SizesOfAll good{{12, 12}, {12, 12}};
  return {
      exchange("SizesOfTooFewMembers", {{12, 12}}, good,
               {"input_sizes has 1 entries", "expected one per local member, 2"}),
      exchange("OutSizesOfTooManyMembers", good, {{12, 12}, {12, 12}, {12, 12}},
               {"out_sizes has 3 entries", "expected one per local member, 2"}),
      exchange("SizesForTooFewMembers", {{24}, {12, 12}}, good,
               {"input_sizes[0] has 1 entries", "expected one per member, 2"}),
      exchange("SizesForTooManyMembers", good, {{12, 12}, {12, 12, 0}},
               {"out_sizes[1] has 3 entries", "expected one per member, 2"}),
      exchange("NegativeSize", good, {{12, 12}, {25, -1}}, {"out_sizes[1][1] is -1", "expected 0 or more"}),
      exchange("SizesBeyondAllNumbers", {{12, 12}, {INT64_MAX, 1}}, good,
               {"input_sizes[1] are more than 2^63 - 1"}),
      exchange("SizesOfLessThanTheInput", {{12, 12}, {12, 11}}, good,
               {"inputs[1] has 24 elements", "expected 23", "input_sizes[1]"}),
      exchange("SizesOfMoreThanTheOutput", good, {{13, 12}, {12, 12}},
               {"out[0] has 24 elements", "expected 25", "out_sizes[0]"}),
      exchange("MembersThatDoNotAgree", {{12, 12}, {10, 14}}, good,
               {"out_sizes[0][1] is 12", "expected 10", "input_sizes[1][0]", "member 1 to 0"}),
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorExchanges, sizes_of_exchanges);

/// all_gather and reduce_scatter of parts of 8 and 4 elements, by these sizes.
std::vector<BadCall> sizes_of_parts() {
  struct Wrong {
    std::string name;
    Sizes sizes;
    std::vector<std::string> message;
  };
  std::vector<BadCall> calls;
  for (const Wrong& wrong : std::vector<Wrong>{
           {"TooFewSizes", {8}, {"sizes has 1 entries", "expected one per member, 2"}},
           {"TooManySizes", {8, 4, 0}, {"sizes has 3 entries", "expected one per member, 2"}},
           {"NegativeSize", {8, -4}, {"sizes[1] is -4", "expected 0 or more"}},
           {"SizesBeyondAllNumbers", {8, INT64_MAX}, {"sizes are more than 2^63 - 1"}},
           {"SizeUnlikeThePart", {8, 5}, {"[1] has 4 elements", "expected 5", "sizes[1]"}},
       }) {
    for (const bool gathers : {true, false}) {
      std::vector<std::string> message = wrong.message;
      message.emplace_back(gathers ? "all_gather: " : "reduce_scatter: ");
      calls.push_back({wrong.name + (gathers ? "OfAGather" : "OfAScatter"),
                       [=](Scene& scene) -> CommunicatorCall {
                         const Row parts{scene.tensor({8}, 0), scene.tensor({4}, 1)};
                         const Row wholes{scene.tensor({12}, 0), scene.tensor({12}, 1)};
                         return [=, sizes = wrong.sizes](Communicator& communicator) {
                           if (gathers) return communicator.all_gather(parts, wholes, sizes);
                           communicator.reduce_scatter(wholes, parts, ReduceOp::sum, sizes);
                         };
                       },
                       message});
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorPartSizes, sizes_of_parts);

/// all_gather or reduce_scatter along dimension 1 of parts of 2 and 3 columns, into or from wholes of 5.
std::vector<BadCall> sizes_along_a_dimension() {
  struct Wrong {
    std::string name;
    Sizes sizes;
    int dim = 1;
    Sizes second_part{4, 3};
    Sizes second_whole{4, 5};
    std::vector<std::string> of_a_gather{};
    std::vector<std::string> of_a_scatter{};
  };
  std::vector<BadCall> calls;
  for (const Wrong& wrong : std::vector<Wrong>{
           {.name = "TooFewSizesAlong",
   .sizes = {2},
   .of_a_gather = {"sizes has 1 entries", "expected one per member, 2"}},
           {.name = "NegativeSizeAlong", .sizes = {6, -1}, .of_a_gather = {"sizes[1] is -1"}},
           {.name = "DimensionThatIsNotThere",
           .sizes = {2, 3},
           .dim = 2,
           .of_a_gather = {"dim is 2, expected -2 to 1"}},
           {.name = "SizeUnlikeThePartAlong",
           .sizes = {2, 4},
           .of_a_gather = {"[1] has size 3 along dimension 1", "expected 4 as sizes[1]"}},
           {.name = "PartUnlikeTheOthers",
           .sizes = {2, 3},
           .second_part = {3, 3},
           .of_a_gather = {"[1] has sizes [3, 3]", "expected [4, 3]", "outside dimension 1"}},
           {.name = "PartOfMoreDimensions",
           .sizes = {2, 3},
           .second_part = {4, 3, 1},
           .of_a_gather = {"[1] has sizes [4, 3, 1]", "expected 2 dimensions"}},
           {.name = "WholeUnlikeTheParts",
           .sizes = {2, 3},
           .second_whole = {2, 10},
           .of_a_gather = {"out[1] has sizes [2, 10]", "expected [4, 10]", "outside dimension 1"},
           .of_a_scatter = {"inputs[1] has sizes [2, 10]", "expected [4, 5] as inputs[0]"}},
           {.name = "WholeOfAnotherLength",
           .sizes = {2, 3},
           .second_whole = {4, 6},
           .of_a_gather = {"out[1] has size 6 along dimension 1", "expected 5: as sizes in all"},
           .of_a_scatter = {"inputs[1] has sizes [4, 6]", "expected [4, 5] as inputs[0]"}},
       }) {
    for (const bool gathers : {true, false}) {
      std::vector<std::string> message =
          gathers || wrong.of_a_scatter.empty() ? wrong.of_a_gather : wrong.of_a_scatter;
      message.emplace_back(gathers ? "all_gather: " : "reduce_scatter: ");
      calls.push_back({wrong.name + (gathers ? "OfAGather" : "OfAScatter"),
                       [=](Scene& scene) -> CommunicatorCall {
                         const Row parts{scene.tensor({4, 2}, 0), scene.tensor(wrong.second_part, 1)};
                         const Row wholes{scene.tensor({4, 5}, 0), scene.tensor(wrong.second_whole, 1)};
                         return [=](Communicator& communicator) {
                           if (gathers) return communicator.all_gather(parts, wholes, wrong.sizes, wrong.dim);
                           communicator.reduce_scatter(wholes, parts, ReduceOp::sum, wrong.sizes, wrong.dim);
                         };
                       },
                       message});
    }
  }
  calls.push_back({"PartInTheWholeAlong",
                   [](Scene& scene) -> CommunicatorCall {
                     const Tensor whole = scene.tensor({4, 5}, 1);
                     const Row parts{scene.tensor({4, 2}, 0), whole.narrow(1, 2, 3)};
                     const Row wholes{scene.tensor({4, 5}, 0), whole};
                     return [=](Communicator& communicator) {
                       communicator.all_gather(parts, wholes, {2, 3}, 1);
                     };
                   },
                   {"all_gather: ", "out[1] overlaps inputs[1]", "expected separate memory"}});
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorSizesAlong, sizes_along_a_dimension);

std::vector<BadCall> parts_that_are_not_equal() {
  return {
      {"ExchangeOfAnOddNumber",
       [](Scene& scene) -> CommunicatorCall {
         const Row inputs{scene.tensor({5}, 0), scene.tensor({5}, 1)};
         const Row out{scene.tensor({5}, 0), scene.tensor({5}, 1)};
         return [=](Communicator& communicator) { communicator.all_to_all(inputs, out); };
       },
       {"all_to_all: ", "inputs[0] has 5 elements", "expected a multiple of 2"}},
      {"ExchangeOfAnOddNumberInAList",
       [](Scene& scene) -> CommunicatorCall {
         const std::vector<Row> inputs{{scene.tensor({4}, 0), scene.tensor({3}, 0)},
                                       {scene.tensor({4}, 1), scene.tensor({3}, 1)}};
         const std::vector<Row> out{{scene.tensor({4}, 0), scene.tensor({3}, 0)},
                                    {scene.tensor({4}, 1), scene.tensor({3}, 1)}};
         return [=](Communicator& communicator) { communicator.all_to_all_coalesced(inputs, out); };
       },
       {"all_to_all_coalesced: ", "inputs[0][1] has 3 elements", "expected a multiple of 2"}},
      {"ExchangeOverlapsPartly",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor memory = scene.tensor({26}, 1);
         const Row inputs{scene.tensor({24}, 0), memory.narrow(0, 0, 24)};
         const Row out{scene.tensor({24}, 0), memory.narrow(0, 2, 24)};
         return [=](Communicator& communicator) { communicator.all_to_all(inputs, out); };
       },
       {"all_to_all: ", "out[1] overlaps inputs[1]", "expected separate memory"}},
      {"ExchangeInPlaceOfOtherLengths",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor memory = scene.tensor({24}, 0);
         const Row inputs{memory, scene.tensor({10}, 1)};
         const Row out{memory.narrow(0, 0, 20), scene.tensor({14}, 1)};
         return [=](Communicator& communicator) {
           communicator.all_to_all(inputs, out, {{16, 8}, {4, 6}}, {{16, 4}, {8, 6}});
         };
       },
       {"all_to_all: ", "out[0] overlaps inputs[0]", "expected separate memory"}},
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorUnequalParts, parts_that_are_not_equal);

}  // namespace
}  // namespace tutti::test::ranks
