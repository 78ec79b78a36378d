"""Classes of errors that passes raise, and that this package asks for."""

from __future__ import annotations

import tvm_ffi


@tvm_ffi.register_error
class SharedMemoryError(ValueError):
    """A block of a kernel needs more shared memory than its target has.

    The message has the bytes found and wanted, one repair, and a table of what takes them.
    """
