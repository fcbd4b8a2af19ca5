// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lets the same function compile for the host and, under nvcc, for the device.
#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
