// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/fake_nccl/fake_nccl.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fake_nccl {
namespace {

constexpr char id_mark[] = "fake NCCL";

ncclComm* opened(const std::string& path, int ranks, int rank) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  return new ncclComm{.path = path, .shared = static_cast<Shared*>(memory), .rank = rank, .ranks = ranks};
}

/// Makes a rank of a communicator, whose ranks know a path.
Step joining(ncclComm_t* result, const std::string& path, int ranks, int rank) {
  return {.give =
              [=] {
                *result = opened(path, ranks, rank);
                if (*result == nullptr) return fail(ncclSystemError, "fake: no file " + path);
                ++(*result)->shared->arrived;
                return ncclSuccess;
              },
          .take =
              [=] {
                ncclComm& comm = **result;
                const ncclResult_t there = wait(comm, [&] { return comm.shared->arrived.load() == ranks; });
                if (rank == 0) unlink(path.c_str());
                return there;
              }};
}

}  // namespace
}  // namespace fake_nccl

using namespace fake_nccl;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t result = count("ncclGetUniqueId"); result != ncclSuccess) return result;
  std::string path = "/tmp/fake_nccl_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return fail(ncclSystemError, "fake: no file in /tmp");
  close(file);
  unlink(path.c_str());  // whoever joins makes it anew
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "%s%s", id_mark, path.c_str());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (const ncclResult_t result = count("ncclCommInitRank"); result != ncclSuccess) return result;
  const std::string content = id.internal;
  if (!content.starts_with(id_mark)) return fail(ncclInvalidArgument, "fake: not my id");
  return add(joining(comm, content.substr(std::strlen(id_mark)), ranks, rank));
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static_cast<void>(count("ncclCommInitRankConfig"));
  if (config->blocking != 1) return fail(ncclInvalidArgument, "fake: expected calls that block");
  return ncclCommInitRank(comm, ranks, id, rank);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks, const int*) {
  static_cast<void>(count("ncclCommInitAll"));
  ncclUniqueId id;
  ncclResult_t result = ncclGetUniqueId(&id);  // by its own name, as above
  if (result != ncclSuccess) return result;
  static_cast<void>(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) static_cast<void>(ncclCommInitRank(comms + rank, ranks, id, rank));
  return ncclGroupEnd();
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  const auto wish = std::make_shared<std::array<float, 2>>();
  *wish = {static_cast<float>(color), static_cast<float>(key)};
  const std::string path = comm->path + "_" + std::to_string(comm->parts++) + "_" + std::to_string(color);
  *part = nullptr;
  return collective("ncclCommSplit", comm, wish->data(), sizeof(*wish), ncclSum, [=](const Given& given) {
    static_cast<void>(wish);  // is there until the group ends
    if (color < 0) return;
    std::vector<std::pair<float, int>> members;
    for (int rank = 0; rank < comm->ranks; ++rank) {
      if (static_cast<int>(given(rank)[0]) == color) members.emplace_back(given(rank)[1], rank);
    }
    std::ranges::sort(members);
    const auto own = std::ranges::find(members, comm->rank, &std::pair<float, int>::second);
    const Step step =
        joining(part, path, static_cast<int>(members.size()), static_cast<int>(own - members.begin()));
    if (step.give() == ncclSuccess) static_cast<void>(step.take());
  });
}
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* rest,
                            ncclConfig_t*, int) {
  static_cast<void>(count("ncclCommShrink"));
  const auto before =
      std::count_if(excluded, excluded + excluded_count, [&](int rank) { return rank < comm->rank; });
  const Step step = joining(rest, comm->path + "_rest", comm->ranks - excluded_count,
                            comm->rank - static_cast<int>(before));
  const ncclResult_t result = step.give();
  return result == ncclSuccess ? step.take() : result;
}
ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId* id) {
  return ncclGetUniqueId(id);
}
ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* larger,
                          ncclConfig_t*) {
  if (const ncclResult_t result = count("ncclCommGrow"); result != ncclSuccess) return result;
  const std::string path = std::string(id->internal).substr(std::strlen(id_mark));
  return add(joining(larger, path, ranks, comm == nullptr ? rank : comm->rank));
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return count("ncclCommFinalize");
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static_cast<void>(count("ncclCommDestroy"));
  return add(alone([comm] {
    munmap(comm->shared, sizeof(Shared));
    delete comm;
    return ncclSuccess;
  }));
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->shared->is_aborted = 1;
  static_cast<void>(count("ncclCommAbort"));
  munmap(comm->shared, sizeof(Shared));
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error =
      comm->shared->is_aborted.load() == 0 ? ncclSuccess : fail(ncclRemoteError, "fake: a rank has aborted");
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
  *ranks = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
