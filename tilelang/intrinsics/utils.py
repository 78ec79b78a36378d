"""The module that programs know these two functions by."""

from tilelang.compat.mma_layouts import get_mma_micro_size as get_mma_micro_size
from tilelang.compat.mma_layouts import mma_store_index_map as mma_store_index_map
