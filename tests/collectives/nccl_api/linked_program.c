/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked with libnccl.so.2: prints the version of the one that it gets. */

#include "tutti/nccl_api.h"

#include <stdio.h>

int main(void) {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return 1;
  printf("%d\n", version);
  return 0;
}
