"""How large the temporaries of a tile of work may be, by device."""

from __future__ import annotations

import torch

__all__ = ["free_bytes", "tile_elements"]

_SHARE = 256  # bytes of free memory for each float of the largest temporary: 2^28 floats on 80 GB


def tile_elements(device: torch.device, cpu: int, *, free: int | None = None) -> int:
    """The floats that the largest temporary of a tile may hold; a power of two on a GPU.

    A tile of a CPU stays in cache, whatever the memory. A GPU is busy only with large tiles, and
    has no cache worth staying in.

    Args:
        device: Device of the work.
        cpu: Floats of a tile on a CPU.
        free: Bytes that are free; by default `free_bytes`.
    """
    if device.type != "cuda":
        return cpu
    free = free_bytes(device) if free is None else free
    return max(cpu, 1 << max(0, (free // _SHARE).bit_length() - 1))


def free_bytes(device: torch.device) -> int:
    """Bytes of a GPU that an allocation can still get, those that torch holds unused among them."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
