/* SPDX-License-Identifier: Apache-2.0 */
#include "tutti/nccl_api.h"

int cudaStreamSynchronize(cudaStream_t stream);

/* Each fragment of C in the documents is the body of such a function (see blocks_test, which includes mpi.h
 * before this): these are what fragments use without declaring it. */
void fragment(int argc, char** argv, float* host_values, float** gradients, size_t count,
              cudaStream_t* streams);
