"""What is asked about devices, where users look for it."""

from tilelang.carver import arch as arch
