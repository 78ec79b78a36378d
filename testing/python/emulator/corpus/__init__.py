"""Kernels with one planted defect each: what the emulator has to find, and where."""
