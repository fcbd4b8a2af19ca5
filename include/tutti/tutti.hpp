// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything the library offers, except `tutti/cuda_interop.hpp`, `tutti/cuda_libraries.hpp` and
/// `tutti/mpi.hpp`, which need the headers of the CUDA toolkit and of MPI.

#include "tutti/capture_error_mode.hpp"
#include "tutti/collective.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/device.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/dtype.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/graph.hpp"
#include "tutti/graphed_callables.hpp"
#include "tutti/memory.hpp"
#include "tutti/nvtx.hpp"
#include "tutti/patience.hpp"
#include "tutti/persistent.hpp"
#include "tutti/pluggable_allocator.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/reduce_types.hpp"
#include "tutti/rng.hpp"
#include "tutti/sharing.hpp"
#include "tutti/stream.hpp"
#include "tutti/sync_debug.hpp"
#include "tutti/telemetry.hpp"
#include "tutti/tensor.hpp"
#include "tutti/topology.hpp"
#include "tutti/version.hpp"
#include "tutti/virtual_devices.hpp"
