/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C for NCCL, as programs are that know nothing of tutti: forks a process for each rank, makes a
 * communicator, and calls what NCCL has. Prints the version of the library that it was given.
 *
 * usage: program [LIBRARY]     opens LIBRARY instead of the one that it is linked with
 * PROGRAM_HOSTS=1: the processes pretend to be on hosts of their own
 * PROGRAM_EARLY=LIBRARY: loads LIBRARY first, and calls nothing in it */

#include "tutti/nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ranks = 2, count = 1000 };

#define FUNCTION(name) __typeof__(&nccl##name) name
static struct {
  FUNCTION(GetVersion);
  FUNCTION(GetUniqueId);
  FUNCTION(CommInitRankConfig);
  FUNCTION(CommGetAsyncError);
  FUNCTION(CommDestroy);
  FUNCTION(MemAlloc);
  FUNCTION(MemFree);
  FUNCTION(GroupStart);
  FUNCTION(GroupEnd);
  FUNCTION(AllReduce);
  FUNCTION(Send);
  FUNCTION(Recv);
  FUNCTION(GetLastError);
} nccl;

#define FIND(name)                                                       \
  do {                                                                   \
    *(void**)&nccl.name = dlsym(library, "nccl" #name);                  \
    if (nccl.name == NULL) return fprintf(stderr, "no nccl%s\n", #name); \
  } while (0)

static int find_functions(const char* path) {
  void* library = path == NULL ? RTLD_DEFAULT : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (path != NULL && library == NULL) return fprintf(stderr, "%s\n", dlerror());
  FIND(GetVersion);
  FIND(GetUniqueId);
  FIND(CommInitRankConfig);
  FIND(CommGetAsyncError);
  FIND(CommDestroy);
  FIND(MemAlloc);
  FIND(MemFree);
  FIND(GroupStart);
  FIND(GroupEnd);
  FIND(AllReduce);
  FIND(Send);
  FIND(Recv);
  FIND(GetLastError);
  return 0;
}

#define CHECK(call)                                                                                 \
  do {                                                                                              \
    ncclResult_t result = (call);                                                                   \
    if (result != ncclSuccess) {                                                                    \
      fprintf(stderr, "rank %d: %s: %d (%s)\n", rank, #call, (int)result, nccl.GetLastError(NULL)); \
      return 1;                                                                                     \
    }                                                                                               \
  } while (0)

static int run(int rank, ncclUniqueId id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  void* memory = NULL;
  ncclResult_t state = ncclInternalError;
  config.blocking = 1;
  if (getenv("PROGRAM_HOSTS") != NULL) setenv("TUTTI_HOST_ID", rank == 0 ? "here" : "there", 1);
  CHECK(nccl.CommInitRankConfig(&comm, ranks, id, rank, &config));
  CHECK(nccl.MemAlloc(&memory, count * sizeof(float)));
  for (int i = 0; i < 100; ++i) CHECK(nccl.AllReduce(memory, memory, count, ncclFloat, ncclMax, comm, NULL));
  CHECK(nccl.GroupStart());
  CHECK(nccl.Send(memory, count / 2, ncclFloat, 1 - rank, comm, NULL));
  CHECK(nccl.Recv((float*)memory + count / 2, count / 2, ncclFloat, 1 - rank, comm, NULL));
  CHECK(nccl.GroupEnd());
  CHECK(nccl.CommGetAsyncError(comm, &state));
  CHECK(state);
  CHECK(nccl.MemFree(memory)); /* waits for the device */
  CHECK(nccl.CommGetAsyncError(comm, &state));
  CHECK(state);
  CHECK(nccl.CommDestroy(comm));
  return 0;
}

int main(int argc, char** argv) {
  int pipes[2];
  int version = 0;
  int failed = 0;
  ncclUniqueId id;
  pid_t child;
  if (getenv("PROGRAM_EARLY") != NULL && dlopen(getenv("PROGRAM_EARLY"), RTLD_NOW) == NULL)
    return fprintf(stderr, "%s\n", dlerror());
  if (find_functions(argc > 1 ? argv[1] : NULL) != 0) return 1;
  if (nccl.GetVersion(&version) != ncclSuccess) return 1;
  printf("%d\n", version);
  fflush(stdout);
  if (version != NCCL_VERSION_CODE) return 0; /* another library, which is not asked for more */
  if (pipe(pipes) != 0) return 1;
  child = fork(); /* before the library is used: a child could not use it afterwards */
  if (child == 0) {
    if (read(pipes[0], &id, sizeof(id)) != sizeof(id)) _exit(1);
    exit(run(1, id));
  }
  if (nccl.GetUniqueId(&id) != ncclSuccess || write(pipes[1], &id, sizeof(id)) != sizeof(id)) return 1;
  failed = run(0, id);
  if (waitpid(child, &version, 0) != child || version != 0) failed = 1;
  return failed;
}
