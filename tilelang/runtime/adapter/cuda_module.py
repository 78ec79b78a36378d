"""Loads a cubin for whichever devices a kernel is called on, through the CUDA driver API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

_ENTRY_POINTS = ("cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent")
_ENTRY_POINT_VERSION = 12000  # the CUDA version whose signatures the adapter declares

# CUDA C++ Programming Guide, "Shared Memory": more than this needs an opt-in for each kernel.
_DEFAULT_SHARED_BYTES = 48 * 1024
# CUDA C++ Programming Guide, "Thread Block Clusters": larger ones need an opt-in too.
_PORTABLE_CLUSTER_BLOCKS = 8


def check(result: tuple[Any, ...], call: str) -> Any:
    """What the driver call returned besides its status. Raises `RuntimeError` naming `call` where
    it failed.
    """
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(
            f"{call} failed: {status.name} ({text.decode() if text else 'no description'})"
        )
    return values[0] if len(values) == 1 else values


@cache
def entry_points() -> tuple[int, ...]:
    """Addresses of the driver functions that the adapter calls itself."""
    from cuda.bindings import driver

    flags = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    addresses = []
    for name in _ENTRY_POINTS:
        found = driver.cuGetProcAddress(name.encode(), _ENTRY_POINT_VERSION, flags)
        address, _ = check(found, f"cuGetProcAddress({name})")
        addresses.append(int(address))
    return tuple(addresses)


@contextmanager
def _primary_context(handle: Any) -> Iterator[Any]:
    """The primary context of a device, which is current meanwhile. It is kept: torch uses it."""
    from cuda.bindings import driver

    context = check(driver.cuDevicePrimaryCtxRetain(handle), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxPushCurrent(context), "cuCtxPushCurrent")
    try:
        yield context
    finally:
        check(driver.cuCtxPopCurrent(), "cuCtxPopCurrent")


class CudaLibrary:
    """A cubin that is loaded for all devices, once for all programs whose kernels it has.

    It is never unloaded: work that a stream still holds may run its kernels after the last
    reference is gone.
    """

    def __init__(self, cubin: bytes):
        from cuda.bindings import driver

        check(driver.cuInit(0), "cuInit")
        self._library = check(
            driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0), "cuLibraryLoadData"
        )

    def kernel(self, name: str) -> Any:
        """The driver's handle of a kernel."""
        from cuda.bindings import driver

        return check(
            driver.cuLibraryGetKernel(self._library, name.encode()), f"cuLibraryGetKernel({name})"
        )


class CudaModule:
    """Kernels of a library. `shared_bytes` is each kernel's dynamic shared memory, None where a
    call decides; `cluster_blocks` the number of blocks of its clusters.
    """

    def __init__(
        self,
        library: CudaLibrary,
        kernels: Sequence[str],
        shared_bytes: Sequence[int | None],
        cluster_blocks: Sequence[int],
    ):
        self._kernels = [library.kernel(name) for name in kernels]
        self._names = list(kernels)
        self._shared_bytes = list(shared_bytes)
        self._cluster_blocks = list(cluster_blocks)

    def load(self, device: int) -> tuple[int, list[int]]:
        """The primary context of `device` and the functions in it, as addresses."""
        from cuda.bindings import driver

        handle = check(driver.cuDeviceGet(device), "cuDeviceGet")
        with _primary_context(handle) as context:
            functions = [
                self._function(kernel, shared_bytes, cluster_blocks, handle)
                for kernel, shared_bytes, cluster_blocks in zip(
                    self._kernels, self._shared_bytes, self._cluster_blocks, strict=True
                )
            ]
        return int(context), functions

    def parameter_bytes(self, kernel_name: str) -> list[int]:
        """The sizes of a kernel's parameters, as it declares them."""
        from cuda.bindings import driver

        kernel = self._kernels[self._names.index(kernel_name)]
        sizes: list[int] = []
        # The driver answers where a context is current, of whichever device.
        with _primary_context(check(driver.cuDeviceGet(0), "cuDeviceGet")):
            while True:
                status, *values = driver.cuKernelGetParamInfo(kernel, len(sizes))
                if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
                    return sizes  # there is no parameter of this number
                _, size = check((status, *values), f"cuKernelGetParamInfo({kernel_name})")
                sizes.append(int(size))

    def multiprocessors(self, device: int) -> int:
        """How many multiprocessors `device` has."""
        from cuda.bindings import driver

        name = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        handle = check(driver.cuDeviceGet(device), "cuDeviceGet")
        return int(check(driver.cuDeviceGetAttribute(name, handle), "cuDeviceGetAttribute"))

    def window_limit(self, device: int) -> int:
        """Bytes of the largest window of accesses that persist in the L2 cache of `device`, 0 where
        it has none. Where nobody has set a part of the cache aside for them, all that may be is
        (CUDA C++ Programming Guide, "Device Memory L2 Access Management").
        """
        from cuda.bindings import driver

        attribute = driver.CUdevice_attribute
        handle = check(driver.cuDeviceGet(device), "cuDeviceGet")
        window, cache = (
            check(driver.cuDeviceGetAttribute(name, handle), "cuDeviceGetAttribute")
            for name in (
                attribute.CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
                attribute.CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
            )
        )
        if not window or not cache:
            return 0
        limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        context = check(driver.cuDevicePrimaryCtxRetain(handle), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxPushCurrent(context), "cuCtxPushCurrent")
        try:
            if not check(driver.cuCtxGetLimit(limit), "cuCtxGetLimit"):
                check(driver.cuCtxSetLimit(limit, cache), f"cuCtxSetLimit(persisting L2 = {cache})")
        finally:
            check(driver.cuCtxPopCurrent(), "cuCtxPopCurrent")
        return int(window)

    @staticmethod
    def _function(kernel: Any, shared_bytes: int | None, cluster_blocks: int, device: Any) -> int:
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute
        static = check(
            driver.cuKernelGetAttribute(
                attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel, device
            ),
            "cuKernelGetAttribute",
        )
        if shared_bytes is None:
            optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            most = check(driver.cuDeviceGetAttribute(optin, device), "cuDeviceGetAttribute")
            shared_bytes = most - static
        # The limit is that of both together: 47984 bytes beside 2048 static ones did not launch.
        if shared_bytes + static > _DEFAULT_SHARED_BYTES:
            check(
                driver.cuKernelSetAttribute(
                    attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared_bytes,
                    kernel,
                    device,
                ),
                f"cuKernelSetAttribute(max dynamic shared memory = {shared_bytes} bytes)",
            )
        if cluster_blocks > _PORTABLE_CLUSTER_BLOCKS:
            check(
                driver.cuKernelSetAttribute(
                    attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                    1,
                    kernel,
                    device,
                ),
                f"cuKernelSetAttribute(clusters of {cluster_blocks} blocks)",
            )
        return int(check(driver.cuKernelGetFunction(kernel), "cuKernelGetFunction"))
