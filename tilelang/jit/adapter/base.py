"""The base class of launchers, where users look for it."""

from tilelang.compat.adapter import BaseKernelAdapter as BaseKernelAdapter
