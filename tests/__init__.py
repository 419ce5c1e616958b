"""Tests mirror the package; `memories` is what those of `Memory` share."""
