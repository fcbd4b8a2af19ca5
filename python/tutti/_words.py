# SPDX-License-Identifier: Apache-2.0
"""Says in `torch.cuda.comm`'s words what is wrong with a call, after the library has refused it."""


def _is_on_host(tensor):
    device = tensor.device
    return getattr(device, "type", str(device)) == "cpu"


def _outputs_on_host(out):
    for index, tensor in enumerate(out):
        if _is_on_host(tensor):
            return f"Expected all output tensors to be CUDA tensors, but output tensor at index {index} is on the host"
    return None


def of_broadcast(tensor, out):
    shape = tuple(tensor.shape)
    for index, one in enumerate(out):
        if tuple(one.shape) != shape:
            return (
                f"Expected all output tensors to have same shape as the source {shape}, but got {tuple(one.shape)} "
                f"at index {index}"
            )
    return _outputs_on_host(out)


def of_scatter(devices, chunk_sizes):
    if devices is not None and len(devices) == 0:
        return "Expected at least one device to scatter to"
    if devices is not None and chunk_sizes is not None and len(devices) != len(chunk_sizes):
        return (
            f"Expected devices and chunk_sizes to be of same length, but got len(devices) = {len(devices)} and "
            f"len(chunk_sizes) = {len(chunk_sizes)}"
        )
    return None


def of_scatter_into(tensor, out, dim):
    if len(out) == 0:
        return "Expected at least one output tensor to scatter to"
    shape = list(tensor.shape)
    along = dim + len(shape) if dim < 0 else dim
    for index, one in enumerate(out):
        others = list(one.shape)
        if len(others) != len(shape) or others[:along] + others[along + 1 :] != shape[:along] + shape[along + 1 :]:
            return (
                f"Output tensor at index {index} has incorrect shape {tuple(others)}, expected that of {tuple(shape)}"
            )
    total = sum(one.shape[along] for one in out)
    if total != shape[along]:
        return (
            f"Total size for output tensors along scatter dim {along} does not match the input's: {total}, expected "
            f"{shape[along]}"
        )
    return _outputs_on_host(out)


def of_gather(tensors, dim):
    if len(tensors) == 0:
        return "Expected at least one tensor to gather from"
    first = list(tensors[0].shape)
    along = dim + len(first) if dim < 0 else dim
    for index, tensor in enumerate(tensors):
        if _is_on_host(tensor):
            return f"Expected all input tensors to be CUDA tensors, but the tensor at index {index} is on the host"
        shape = list(tensor.shape)
        if len(shape) != len(first):
            return (
                f"Expected all input tensors to have the same number of dimensions, but got {len(shape)} at index "
                f"{index} and {len(first)} at index 0"
            )
        if shape[:along] + shape[along + 1 :] != first[:along] + first[along + 1 :]:
            return f"Input tensor at index {index} has invalid shape {tuple(shape)}, expected that of {tuple(first)}"
    return None
