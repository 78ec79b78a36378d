"""Layouts of a warp's matrices."""
