// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/checks.hpp"

#include "tutti/error.hpp"

#include <array>
#include <string_view>

#include <fmt/format.h>

namespace tutti::mpi {

bool is_running() noexcept {
  int is_initialised = 0;
  int is_finalised = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_finalised);
  return is_initialised != 0 && is_finalised == 0;
}

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(ErrorCode::transport_failure,
              fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length))),
              status);
}

void require_usable(MPI_Comm comm, const char* function) {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", function, what));
  };
  if (!is_running()) {
    int is_finalised = 0;
    MPI_Finalized(&is_finalised);
    fail(is_finalised != 0 ? "MPI has been finalised"
                           : "MPI is not initialised, call MPI_Init_thread first, with MPI_THREAD_MULTIPLE");
  }
  int level = MPI_THREAD_SINGLE;
  int is_main = 0;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
  if (level < MPI_THREAD_SERIALIZED && is_main == 0) {
    fail(
        "this is not the thread that initialised MPI, and MPI was initialised without MPI_THREAD_SERIALIZED");
  }
  if (comm == MPI_COMM_NULL) fail("comm is MPI_COMM_NULL");
  int is_inter = 0;
  check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0) fail("comm is an inter-communicator, expected one group of processes");
}

}  // namespace tutti::mpi
