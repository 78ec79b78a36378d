"""Products of a warp's matrices by hand (`tilelang.compat.tensor_core_emitter`), and where these
lie (`tilelang.compat.mma_layouts`)."""

from tilelang.compat.mma_layouts import *  # noqa: F403
from tilelang.compat.tensor_core_emitter import (
    TensorCoreIntrinEmitter as TensorCoreIntrinEmitter,
)
