"""Ceilings of a device: bytes a second of a copy, and floating-point operations of products.

`python -m bench.ceilings [--device cuda] [--size 8192]` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch

from bench.perf.machine import copy_speed, describe, synchronize

__all__ = ["main", "product_speed"]


def product_speed(device: str, size: int, dtype: torch.dtype, repeats: int = 5) -> float:
    """Return the operations a second of a square product, the best of some."""
    one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(repeats + 1):  # the first one warms up
        synchronize(device)
        begin = time.perf_counter()
        one @ other
        synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best


def main(arguments: list[str]) -> int:
    """Measure the device and print a line."""
    parser = argparse.ArgumentParser(prog="python -m bench.ceilings", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", type=int, default=8192)
    chosen = parser.parse_args(arguments)
    found = {"machine": describe(), "copy_gb_per_s": 0.0, "product_tflops": {}}
    found["copy_gb_per_s"] = copy_speed(chosen.device, 0, time.perf_counter) / 1e9
    found["product_tflops"] = {
        str(dtype).removeprefix("torch."): product_speed(chosen.device, chosen.size, dtype) / 1e12
        for dtype in (torch.bfloat16, torch.float32)
    }
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
