// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "foreign_tensors.hpp"
#include "python_communicator.hpp"
#include "shared_object.hpp"
#include "tutti/error.hpp"
#include "tutti/grow_options.hpp"
#include "tutti/shrink_options.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

/// Calls a function of the program, on whichever thread, in which calls are to be recorded.
std::function<void()> function_of(nb::callable calls) {
  const auto kept = shared_object(calls);
  return [kept, calls = nb::handle(calls)] {
    const nb::gil_scoped_acquire acquire;
    const OwnStreams recorded;
    nb::borrow<nb::callable>(calls)();
  };
}

std::unique_ptr<PythonCommunicator> split(const PythonCommunicator& self, std::optional<int> color, int key) {
  std::optional<Communicator> part = self.call([&](Communicator& c) { return c.split(color, key); });
  return part ? made(std::move(*part)) : nullptr;
}

LateRanks late_ranks_of(const char* function, const std::string& text) {
  if (text == "fail") return LateRanks::fail;
  if (text == "leave_out") return LateRanks::leave_out;
  throw Error(ErrorCode::invalid_argument,
              std::string(function) + ": late is '" + text + "', expected 'fail' or 'leave_out'");
}

std::optional<std::chrono::milliseconds> limit_of(std::optional<double> seconds) {
  return seconds ? std::optional(milliseconds_of(*seconds)) : std::nullopt;
}

/// Returns the communicator of the ranks that go on; nullptr, for None, to a rank that does not.
std::unique_ptr<PythonCommunicator> made_of(Communicator successor) {
  return successor ? made(std::move(successor)) : nullptr;
}

std::unique_ptr<PythonCommunicator> shrink(const PythonCommunicator& self, std::vector<int> leaving,
                                           const std::string& late, std::optional<double> timeout) {
  const ShrinkOptions options{
      .leaving = std::move(leaving), .late = late_ranks_of("shrink", late), .timeout = limit_of(timeout)};
  return made_of(self.call([&](Communicator& c) { return c.shrink(options); }));
}

std::unique_ptr<PythonCommunicator> grow(const PythonCommunicator& self, const MeetingPoint& meeting_point,
                                         int most, std::optional<int> fewest, std::optional<double> timeout,
                                         std::optional<double> new_rank_timeout) {
  const GrowOptions options{.meeting_point = meeting_point,
                            .most = most,
                            .fewest = fewest,
                            .new_rank_timeout = limit_of(new_rank_timeout),
                            .timeout = limit_of(timeout)};
  return made_of(self.call([&](Communicator& c) { return c.grow(options); }));
}

std::unique_ptr<PythonCommunicator> replace(const PythonCommunicator& self, const MeetingPoint& meeting_point,
                                            std::vector<int> leaving, const std::string& late,
                                            std::optional<double> timeout) {
  const ReplaceOptions options{.meeting_point = meeting_point,
                               .leaving = std::move(leaving),
                               .late = late_ranks_of("replace", late),
                               .timeout = limit_of(timeout)};
  return made_of(self.call([&](Communicator& c) { return c.replace(options); }));
}

Collective collective_of(const std::string& name) {
  for (std::size_t i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (name_of(collective) == name) return collective;
  }
  throw Error(ErrorCode::invalid_argument,
              "explain: collective is '" + name + "', expected one such as 'all_reduce'");
}

std::string explain(const PythonCommunicator& self, const std::optional<std::string>& collective,
                    std::size_t bytes, const DTypeArgument& dtype, const OperationArgument& op, int root) {
  if (!collective) return self.get().explain();
  const Workload workload{.collective = collective_of(*collective),
                          .bytes = bytes,
                          .dtype = dtype.optional().value_or(DType::float32),
                          .reduce_kind = op.get().kind(),
                          .root = Device(root)};
  return self.get().explain(workload);
}

void bind_description(CommunicatorClass& communicators) {
  communicators.def_prop_ro("rank", [](const PythonCommunicator& self) { return self.get().rank(); })
      .def_prop_ro("rank_count", [](const PythonCommunicator& self) { return self.get().rank_count(); })
      .def_prop_ro(
          "member_count", [](const PythonCommunicator& self) { return self.get().member_count(); },
          "The number of devices of all ranks.")
      .def_prop_ro("first_member", [](const PythonCommunicator& self) { return self.get().first_member(); })
      .def_prop_ro(
          "devices", [](const PythonCommunicator& self) { return self.get().devices(); },
          "The devices of this process's members.")
      .def(
          "last_plan", [](const PythonCommunicator& self) { return self.get().last_plan(); },
          "The plan of this process's last call.")
      .def("explain", &explain, nb::arg("collective") = nb::none(), nb::arg("bytes") = 0,
           nb::arg("dtype") = nb::none(), nb::arg("op") = nb::none(), nb::arg("root") = 0,
           "How data may travel between the members, or how a call of so many bytes would, and why.")
      .def(
          "abort",
          [](const PythonCommunicator& self, const std::string& reason) {
            if (self.is_open()) self.get().abort(reason);
          },
          nb::arg("reason"), "Ends the communicator on all ranks. Returns at once.")
      .def("is_running",
           [](const PythonCommunicator& self) { return self.is_open() && self.get().is_running(); })
      .def(
          "check", [](const PythonCommunicator& self) { self.get().check(); },
          "Raises the error that has ended the communicator, if any.")
      .def(
          "flight_record", [](const PythonCommunicator& self) { return self.get().flight_record(); },
          "Every rank's last calls, as one line of JSON.")
      .def("close", &PythonCommunicator::close,
           "Destroys the communicator; waits for calls under way, and for the other ranks to complete as "
           "many.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__", [](PythonCommunicator& self, nb::args) { self.close(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

/// Adds what is made of a communicator.
void bind_derived(CommunicatorClass& communicators) {
  communicators
      .def(
          "persistent",
          [](const PythonCommunicator& self, nb::callable calls) {
            std::function<void()> function = function_of(std::move(calls));
            return self.call([&](Communicator& c) { return c.persistent(std::move(function)); });
          },
          nb::arg("calls"), nb::keep_alive<0, 1>(),
          "Binds the calls that `calls()` makes, once, so that they can be launched many times.")
      .def("split", &split, nb::arg("color").none(), nb::arg("key") = 0,
           nb::sig("def split(self, color: int | None, key: int = 0) -> Communicator | None"),
           "A communicator of the ranks with the same color, in order of key; None for those without a "
           "color.");
}

/// Adds what makes a communicator of other ranks.
void bind_changes(CommunicatorClass& communicators) {
  communicators
      .def(
          "shrink", &shrink, nb::arg("leaving") = std::vector<int>{}, nb::arg("late") = "fail",
          nb::arg("timeout") = nb::none(),
          nb::sig("def shrink(self, leaving: list[int] = [], late: str = 'fail', timeout: float | None = "
                  "None) -> "
                  "Communicator | None"),
          "A communicator of the ranks that are left, in their old order, after the end of this one or to go "
          "on without the ranks `leaving`, which get None. All ranks that are left call it. `late` says "
          "whether ranks that do not come within `timeout` seconds, this communicator's unless given, fail "
          "the call ('fail') or are left out ('leave_out'). Raises TimeoutError, on all ranks, with the rank "
          "that is late, and on a rank that the others have gone on without. Tensors and streams stay; bound "
          "calls go on by `rebind`. If ranks are on several hosts, one of rank 0's host has to be left.")
      .def("grow", &grow, nb::arg("meeting_point"), nb::arg("most") = 1, nb::arg("fewest") = nb::none(),
           nb::arg("timeout") = nb::none(), nb::arg("new_rank_timeout") = nb::none(),
           "A communicator of all ranks and, behind them, of up to `most` (1 to 16) processes of this host "
           "that call `Communicator.join`. All ranks call it. Waits until `most` have come, or for `timeout` "
           "seconds, this communicator's unless given; then `fewest` are enough, `most` unless given. "
           "`new_rank_timeout` bounds the wait for new ranks alone: 0 takes those that wait already, at an "
           "`OpenMeetingPoint`. Then this communicator has ended. Raises TimeoutError if too few come: this "
           "one "
           "goes on as before; "
           "PeerUnavailableError if a rank is lost: shrink first, or replace it.")
      .def("replace", &replace, nb::arg("meeting_point"), nb::arg("leaving") = std::vector<int>{},
           nb::arg("late") = "fail", nb::arg("timeout") = nb::none(),
           nb::sig(
               "def replace(self, meeting_point: MeetingPoint, leaving: list[int] = [], late: str = 'fail', "
               "timeout: float | None = None) -> Communicator | None"),
           "A communicator of as many ranks: processes that call `Communicator.join` take the numbers of the "
           "ranks that are lost or `leaving`, and the others keep theirs. All ranks that are left call it. "
           "Arguments are those of `shrink` and `grow`. Raises what these raise; TimeoutError if too few "
           "processes come: then the ranks that are left may call `shrink`, or try again.");
}

}  // namespace

void bind_communicator(nb::module_& module) {
  bind_meeting_points(module);
  CommunicatorClass communicators(
      module, "Communicator",
      "Devices of several processes, and the collectives among them. All ranks make the same "
      "calls in the same "
      "order. Each local member gives one tensor: a process with one member gives that, "
      "others a list. Tensors "
      "are of any library with DLPack; results are of the kind that was given. Host memory "
      "is taken on virtual "
      "devices alone, where the call then returns with the result.");
  bind_makers(communicators);
  bind_description(communicators);
  bind_rooted_calls(communicators);
  bind_rootless_calls(communicators);
  bind_messages(communicators);
  bind_symmetric(communicators);
  bind_derived(communicators);
  bind_changes(communicators);
}

}  // namespace tutti::python
