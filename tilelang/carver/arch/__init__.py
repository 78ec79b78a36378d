"""Architectures, where users look for them."""

from tilelang.carver.arch import driver as driver
