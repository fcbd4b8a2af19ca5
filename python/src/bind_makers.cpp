// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "function_exchange.hpp"
#include "interrupts.hpp"
#include "python_communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/grow_options.hpp"
#include "tutti/open_meeting_point.hpp"
#include "tutti/tcp.hpp"

#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

namespace tutti::python {
namespace {

Determinism determinism_of(const std::string& text) {
  if (text == "fastest") return Determinism::fastest;
  if (text == "bitwise") return Determinism::bitwise;
  throw Error(ErrorCode::invalid_argument, "determinism is '" + text + "', expected 'fastest' or 'bitwise'");
}

/// Reads the options that every maker of a communicator takes by keyword.
CommunicatorOptions options_of(const nb::dict& given) {
  CommunicatorOptions options;
  for (const auto [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "devices") {
      options.devices = DevicesArgument{nb::borrow(value)}.get();
    } else if (name == "timeout") {
      options.timeout = milliseconds_of(nb::cast<double>(value));
    } else if (name == "patience") {
      options.patience = milliseconds_of(nb::cast<double>(value));
    } else if (name == "window_bytes") {
      options.window_bytes = nb::cast<std::size_t>(value);
    } else if (name == "transport") {
      options.transport = parse_transport(nb::cast<std::string>(value));
    } else if (name == "determinism") {
      options.determinism = determinism_of(nb::cast<std::string>(value));
    } else if (name == "multiprocessors") {
      options.multiprocessors = nb::cast<int>(value);
    } else {
      throw Error(
          ErrorCode::invalid_argument,
          "Communicator: '" + name +
              "' is no option, expected devices, timeout, patience, window_bytes, transport, determinism or "
              "multiprocessors");
    }
  }
  return options;
}

std::unique_ptr<PythonCommunicator> local(const DevicesArgument& devices, const nb::kwargs& given) {
  CommunicatorOptions options = options_of(given);
  options.devices = devices.get();
  const nb::gil_scoped_release release;
  return made(Communicator(options));
}

std::unique_ptr<PythonCommunicator> from_exchange(int rank, int size, nb::callable all_gather,
                                                  nb::object limit_waits, const nb::kwargs& given) {
  const CommunicatorOptions options = options_of(given);
  FunctionExchange exchange(rank, size, std::move(all_gather), std::move(limit_waits));
  const nb::gil_scoped_release release;
  return made(Communicator(exchange, options));
}

void watch_signals() {
  const nb::gil_scoped_acquire acquire;
  check_signals();
}

std::unique_ptr<PythonCommunicator> from_env(const nb::kwargs& given) {
  CommunicatorOptions options = options_of(given);
  const tcp::Rendezvous rendezvous = tcp::rendezvous();
  const nb::gil_scoped_release release;
  if (options.devices.empty()) options.devices = {Device(rendezvous.local_rank % device_count())};
  tcp::Exchange exchange(rendezvous, watch_signals);
  return made(Communicator(exchange, options));
}

std::unique_ptr<PythonCommunicator> join(const MeetingPoint& meeting_point, double timeout,
                                         const nb::kwargs& given) {
  const CommunicatorOptions own = options_of(given);
  const JoinOptions options{
      .meeting_point = meeting_point, .timeout = milliseconds_of(timeout), .watch = watch_signals};
  const nb::gil_scoped_release release;
  return made(Communicator::join(options, own));
}

/// Adds a maker that is written in Python.
void bind_python_maker(CommunicatorClass& communicators, const char* name, const char* signature,
                       const char* text) {
  communicators.def_static(
      name,
      [name](const nb::args& arguments, const nb::kwargs& options) -> nb::object {
        return nb::module_::import_("tutti.communicator").attr(name)(*arguments, **options);
      },
      nb::sig(signature), text);
}

void bind_python_makers(CommunicatorClass& communicators) {
  bind_python_maker(communicators, "from_store",
                    "def from_store(store: typing.Any, rank: int, size: int, *, prefix: str = 'tutti', "
                    "**options) -> Communicator",
                    "A communicator of `size` processes that share a store of torch.distributed, or any with "
                    "`set`, `get` and `check`. "
                    "`prefix` tells apart communicators that are made with one store.");
  bind_python_maker(
      communicators, "from_mpi4py", "def from_mpi4py(comm: typing.Any, **options) -> Communicator",
      "A communicator of the processes of an mpi4py communicator, which may be freed right away.");
}

}  // namespace

void bind_meeting_points(nb::module_& module) {
  nb::class_<MeetingPoint>(
      module, "MeetingPoint",
      "Where processes that call `Communicator.join` meet the ranks that call `grow` or "
      "`replace`, over TCP; the same on all of them. `address` is the ranks' host, `port` "
      "1 to 65535. `secret` has 16 characters or more; it may be empty for loopback "
      "addresses, and then other users of the host must be trusted. `job` tells apart "
      "jobs that have one secret.")
      .def(
          "__init__",
          [](MeetingPoint* self, int port, std::string address, std::string secret, std::string job) {
            new (self) MeetingPoint{std::move(address), port, std::move(secret), std::move(job)};
          },
          nb::arg("port"), nb::arg("address") = "127.0.0.1", nb::arg("secret") = "", nb::arg("job") = "")
      .def_ro("port", &MeetingPoint::port)
      .def_ro("address", &MeetingPoint::address)
      .def_ro("job", &MeetingPoint::job)
      .def("__repr__", [](const MeetingPoint& self) {
        return "MeetingPoint(" + std::to_string(self.port) + ", '" + self.address + "')";
      });
  nb::class_<OpenMeetingPoint>(module, "OpenMeetingPoint",
                               "Keeps a meeting point open between calls of `Communicator.grow` and "
                               "`replace`, on one of the ranks: new "
                               "processes may come at any time, wait there, and are counted. At most "
                               "`most_waiting` (1 to 256) wait at "
                               "a time. Ends with the object, by `close` or at the end of a `with` block; "
                               "those that wait then look for "
                               "it again. Raises Error if this process cannot listen there.")
      .def(nb::init<const MeetingPoint&, int>(), nb::arg("meeting_point"), nb::arg("most_waiting") = 16,
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("waiting_count", &OpenMeetingPoint::waiting_count,
                   "How many processes wait. Only this process knows: send the number to the other ranks, so "
                   "that all decide alike.")
      .def(
          "close", [](OpenMeetingPoint& self) { const OpenMeetingPoint closed(std::move(self)); },
          "Closes the meeting point. Does nothing if it is closed.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__",
          [](OpenMeetingPoint& self, nb::args) { const OpenMeetingPoint closed(std::move(self)); },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

void bind_makers(CommunicatorClass& communicators) {
  communicators
      .def_static("local", &local, nb::arg("devices") = nb::none(), nb::arg("options"),
                  "A communicator of this process's devices alone; all of them by default.")
      .def_static(
          "from_exchange", &from_exchange, nb::arg("rank"), nb::arg("size"), nb::arg("all_gather"),
          nb::arg("limit_waits") = nb::none(), nb::arg("options"),
          "A communicator of processes that exchange data by `all_gather(mine: bytes) -> list[bytes]` of the "
          "program, which returns the bytes of all ranks, in their order. `limit_waits(seconds)` bounds "
          "later waits.")
      .def_static(
          "from_env", &from_env, nb::arg("options"),
          "A communicator of the processes that torchrun, Slurm or a script has started: RANK, WORLD_SIZE, "
          "LOCAL_RANK, MASTER_ADDR, MASTER_PORT. The device is LOCAL_RANK unless `devices` is given.")
      .def_static(
          "join", &join, nb::arg("meeting_point"), nb::arg("timeout") = 60.0, nb::arg("options"),
          "Becomes a rank of a communicator of this host whose ranks call `grow` or `replace`. May come "
          "before "
          "them, and as one too many: then it waits for the next such call, for `timeout` seconds at most, "
          "and "
          "Ctrl-C ends the wait. Raises TimeoutError if nobody lets it in, InvalidArgumentError for another "
          "secret or job, or another build of tutti.");
  bind_python_makers(communicators);
}

}  // namespace tutti::python
