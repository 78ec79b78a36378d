"""Names of tools around compilers, where users look for them."""

from tilelang.contrib import nvcc as nvcc
