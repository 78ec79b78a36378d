"""The module that programs know the emitter by."""

from tilelang.compat.tensor_core_emitter import (
    TensorCoreIntrinEmitter as TensorCoreIntrinEmitter,
)
