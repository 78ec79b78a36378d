"""Launches by AMD's runtime, HIP."""


cdef class HipLauncher:
    """Launches by the functions of a `tilelang.runtime.adapter.hip_module.HipRuntime`."""

    cdef object current_stream, describe
    cdef HipModuleLaunchKernel launch_kernel
    cdef HipGetDevice get_device
    cdef HipSetDevice set_device

    def __init__(self, runtime):
        self.current_stream = runtime.current_stream
        self.describe = runtime.describe
        self.launch_kernel = <HipModuleLaunchKernel><uintptr_t>runtime.address("hipModuleLaunchKernel")
        self.get_device = <HipGetDevice><uintptr_t>runtime.address("hipGetDevice")
        self.set_device = <HipSetDevice><uintptr_t>runtime.address("hipSetDevice")

    cdef int launch(
        self, ArgumentReader launcher, Device* device, int device_id, void** pointers,
        LaunchConfig* configs,
    ) except -1:
        """Launches all kernels on the stream that is current on their device, where a module was
        loaded; the thread's own device is current again behind it."""
        cdef void* stream = <void*><uintptr_t>self.current_stream(device_id)
        cdef int current = -1
        self._check(launcher, "hipGetDevice", self.get_device(&current))
        if current == device_id:
            return self._launch_all(launcher, device, stream, pointers, configs)
        self._check(launcher, f"hipSetDevice({device_id})", self.set_device(device_id))
        try:
            return self._launch_all(launcher, device, stream, pointers, configs)
        finally:
            self.set_device(current)

    cdef int _launch_all(
        self, ArgumentReader launcher, Device* device, void* stream, void** pointers,
        LaunchConfig* configs,
    ) except -1:
        cdef HipModuleLaunchKernel run = self.launch_kernel
        cdef unsigned* e
        cdef void** args
        cdef void* function
        cdef int status, i, k
        for k in range(launcher.num_kernels):
            e = configs[k].extents
            if e[0] == 0 or e[1] == 0 or e[2] == 0:
                continue
            args = &pointers[launcher.kernels[k].first_argument]
            function = device.functions[k]
            # The runtime blocks when its queue is full; other threads go on.
            with nogil:
                status = run(
                    function, e[0], e[1], e[2], e[3], e[4], e[5], e[6], stream, args, NULL)
            if status:
                raise errors.hip_launch_failed(
                    launcher.plan, k, [e[i] for i in range(7)], self.describe(status))
        return 0

    cdef int _check(self, ArgumentReader launcher, str call, int status) except -1:
        if status:
            raise errors.hip_call(launcher.plan, call, self.describe(status))
        return 0
