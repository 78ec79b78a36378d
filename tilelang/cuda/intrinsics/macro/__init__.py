"""Emitters of a warp's instructions."""
