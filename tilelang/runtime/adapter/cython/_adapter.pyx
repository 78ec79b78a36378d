# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Interprets a launch plan on torch tensors, in about a microsecond.

A call goes through five steps, and every error is found before the last one:
read the arguments, check shapes and strides, allocate outputs, compute launch parameters, launch.

Tensors are read through DLPack's C exchange API (https://dmlc.github.io/dlpack, version 1.3), whose
structs are declared here, as are the driver entry points, so that nothing of torch or CUDA is
needed to build this file.
"""

import ctypes
import math
import operator

import cython
import torch
from numpy import bool_ as numpy_bool

from tilelang.runtime.adapter import errors, positional
from tilelang.engine.launch_plan import COMPARISONS, PointerParam, TensorParam
from tilelang.engine.symbols import evaluate
from tilelang.utils import dtypes

include "_plan.pxi"
include "_variants.pxi"
include "_snapshot.pxi"
include "_dispatch.pxi"
include "_callee.pxi"
include "_encoded_plan.pxi"
include "_arguments.pxi"
include "_hip.pxi"


cdef class Launcher(ArgumentReader):
    """Calls the kernels of a launch plan: ``launcher(*inputs)``.

    `load(device)` gives ``(context, [function, ...])``, addresses for one device in the plan's
    order of kernels; it is called once per device. `driver` holds the addresses of cuLaunchKernelEx,
    cuCtxGetCurrent, cuCtxPushCurrent and cuCtxPopCurrent; None runs emulated kernels on CPU tensors
    (docs/design.md, section 5). `hip` stands in its place where AMD's runtime launches
    (`tilelang.runtime.adapter.hip_module.HipRuntime`). `device` is where the tensors are, by default the driver's: another
    one is for a driver that stands in for CUDA's. `encode(descriptor, address, shape, byte_strides)` gives the 128
    bytes of a tensor map; it is called when a map is wanted for the first time.
    `window_limit(device)` gives how many bytes of a tensor may persist in the L2 cache; it is
    called, once per device, where a kernel wants that, as `multiprocessors(device)` is where a
    kernel is persistent. `otherwise(number)` gives the launcher of
    one of the plan's other variants; it is called when a call needs it.

    One output is returned as a tensor, several as a list, none as None.

    Raises `ValueError` where an argument's count, rank, dtype, shape, strides, device or alignment
    is wrong, `TypeError` where it is no tensor or no number, `RuntimeError` where the launch fails.
    Nothing runs after an error.
    """

    cdef object load, explain, encode, window_limit, multiprocessors, empty_options
    cdef object same_as  # a launcher that has read a call for this one
    cdef dict maps  # the bytes of every tensor map that was made, by descriptor and key
    cdef size_t scratch_bytes
    cdef Device devices[MAX_DEVICES]
    cdef LaunchKernelEx launch_kernel
    cdef GetCurrentContext get_context
    cdef PushContext push_context
    cdef PopContext pop_context
    cdef HipLauncher hip

    def __init__(
        self, plan, load, driver=None, explain=None, encode=None, window_limit=None, device=None,
        otherwise=None, hip=None, multiprocessors=None,
    ):
        if self.plan is not None:
            raise RuntimeError("a Launcher is initialised once")
        self.plan = plan
        self.load = load
        self.explain = explain
        self.encode = encode
        self.window_limit = window_limit
        self.multiprocessors = multiprocessors
        self.otherwise = otherwise
        self.maps = {}
        # torch calls both vendors' devices cuda; DLPack does not.
        self.device = device or ("cpu" if driver is None and hip is None else "cuda")
        self.device_type = kDLCPU
        if self.device == "cuda":
            self.device_type = kDLCUDA if hip is None else kDLROCM
        self.hip = None if hip is None else HipLauncher(hip)
        if driver is not None:
            self.launch_kernel = <LaunchKernelEx><uintptr_t>driver[0]
            self.get_context = <GetCurrentContext><uintptr_t>driver[1]
            self.push_context = <PushContext><uintptr_t>driver[2]
            self.pop_context = <PopContext><uintptr_t>driver[3]
        self.empty_options = {}
        self._encode_params()
        self._encode_descriptors()
        self._encode_kernels()
        # At least one byte: malloc may answer a request for none with NULL.
        self.scratch_bytes = (
            1
            + self.num_params * (sizeof(DLTensor) + sizeof(int64_t))
            + self.num_variables * sizeof(int64_t)
            + self.num_arguments * (sizeof(int64_t) + sizeof(void*))
            + self.num_kernels * sizeof(LaunchConfig)
            + self.num_arguments * sizeof(unsigned long)
            + self.num_descriptors * MAP_BYTES
            + MAP_ALIGNMENT
        )

    def __dealloc__(self):
        cdef int i
        for i in range(MAX_DEVICES):
            free(self.devices[i].functions)

    # A call.

    def __call__(self, *args):
        return self.call(args)

    cdef object call(self, tuple args):
        cdef char* memory
        if len(args) != self.num_inputs:
            raise errors.wrong_count(self.plan, len(args))
        memory = <char*>malloc(self.scratch_bytes)
        if memory is NULL:
            raise MemoryError()
        try:
            return self._run(args, memory)
        finally:
            free(memory)

    cdef object _run(self, tuple args, char* memory):
        cdef DLTensor* tensors = <DLTensor*>memory
        cdef int64_t* variables = <int64_t*>(tensors + self.num_params)
        cdef int64_t* scalars = variables + self.num_variables
        cdef int device_id = -1
        cdef int i, form
        cdef object other

        form = self._read(args, tensors, variables, scalars, &device_id)
        if form == FOREIGN:
            return self._run(exchanged(self.plan, args), memory)
        if form & WITH_NONE:
            self._define_without(args, tensors, variables, scalars)
        else:
            for i in range(self.num_solutions):
                self._solve(i, variables)
        for i in range(self.num_inputs):
            if self.params[self.inputs[i]].is_tensor and args[i] is not None:
                self._check(args[i], self.inputs[i], &tensors[self.inputs[i]], variables)
        for i in range(self.num_requirements):
            self._require(i, variables)
        if device_id < 0:
            device_id = 0 if self.device_type == kDLCPU else torch.cuda.current_device()
        if device_id >= MAX_DEVICES:
            raise errors.too_many_devices(self.plan, device_id, MAX_DEVICES)
        if form & MISALIGNED or not all_hold(
            self.variants.guards, self.variants.ends[0], variables):
            other = self._other(form & MISALIGNED, tensors, variables)
            # Tests have others in the place of launchers.
            if type(other) is not Launcher or not self._reads_as(<Launcher>other):
                return other(*args)
            return (<Launcher>other)._call_read(tensors, variables, scalars, device_id)
        return self._finish(
            tensors, variables, scalars, device_id, <char*>(scalars + self.num_params))

    cdef object _finish(
        self, DLTensor* tensors, int64_t* variables, int64_t* scalars, int device_id, char* memory
    ):
        """The rest of a call whose arguments are read and checked."""
        cdef int64_t* values = <int64_t*>memory
        cdef void** pointers = <void**>(values + self.num_arguments)
        cdef LaunchConfig* configs = <LaunchConfig*>(pointers + self.num_arguments)
        cdef unsigned long* sizes = <unsigned long*>(configs + self.num_kernels)
        cdef char* maps = aligned(<char*>(sizes + self.num_arguments), MAP_ALIGNMENT)
        cdef int i
        cdef list results
        if not self.devices[device_id].loaded:
            self._load(device_id)
        results = self._allocate(tensors, variables, device_id)
        for i in range(self.num_descriptors):
            self._make_map(i, tensors, variables, scalars, device_id, maps + i * MAP_BYTES)
        self._prepare(
            tensors, variables, scalars, values, pointers, configs, sizes, maps,
            self.devices[device_id].multiprocessors)
        self._launch(device_id, tensors, pointers, configs)
        if self.num_outputs == 0:
            return None
        return results[0] if self.num_outputs == 1 else results[: self.num_outputs]

    cdef object _call_read(
        self, DLTensor* tensors, int64_t* variables, int64_t* scalars, int device_id
    ):
        """A call that another variant has read and checked."""
        cdef char* memory = <char*>malloc(self.scratch_bytes)
        if memory is NULL:
            raise MemoryError()
        try:
            return self._finish(tensors, variables, scalars, device_id, memory)
        finally:
            free(memory)

    cdef bint _reads_as(self, Launcher other):
        """Whether what this variant reads of a call is what `other` would read."""
        if other.same_as is not self:
            if other.variables != self.variables or other.plan.params != self.plan.params:
                return False
            other.same_as = self
        return True

    cdef object _other(self, bint misaligned, DLTensor* tensors, int64_t* variables):
        """The launcher of a call that this variant does not take."""
        cdef int i
        error = None
        try:
            found = self.variants.other(misaligned, variables)
        except ValueError as refused:
            if not misaligned:
                raise
            found, error = None, refused
        if found is not None:
            return found
        for i in self.plan.inputs:
            if misaligned and self.params[i].is_tensor and <uintptr_t>tensors[i].data % ALIGNMENT:
                address = <uintptr_t>tensors[i].data
                raise errors.misaligned(self.plan, i, address) from error
        raise errors.no_variant(self.plan)

    cdef list _allocate(self, DLTensor* tensors, int64_t* variables, int device_id):
        cdef list results = []
        cdef int i, d, index
        cdef Param* param
        if self.num_allocated == 0:
            return results
        options = self.empty_options.get(device_id)
        if options is None:
            device = torch.device(self.device, device_id)
            options = [{"dtype": dtype, "device": device} for dtype in self.allocated_dtypes]
            self.empty_options[device_id] = options
        for i in range(self.num_allocated):
            index = self.allocated[i]
            param = &self.params[index]
            shape = tuple([
                self._evaluate(&param.shape[d], variables)
                // (param.packing if d == param.ndim - 1 else 1) for d in range(param.ndim)])
            if param.row_major:
                # A call with keywords would make the same dict each time.
                result = PyObject_Call(torch_empty, (shape,), options[i])
            else:
                strides = tuple([
                    self._evaluate(&param.strides[d], variables)
                    // (1 if d == param.ndim - 1 else param.packing) for d in range(param.ndim)])
                result = PyObject_Call(torch.empty_strided, (shape, strides), options[i])
            torch_api.dltensor_from_py_object_no_sync(<PyObject*>result, &tensors[index])
            results.append(result)
        return results

    cdef int _prepare(
        self, DLTensor* tensors, int64_t* variables, int64_t* scalars, int64_t* values,
        void** pointers, LaunchConfig* configs, unsigned long* sizes, char* maps,
        unsigned multiprocessors,
    ) except -1:
        """Computes what every kernel is launched with, so that a bad value stops all of them."""
        cdef int i, k
        cdef int64_t value, limit
        cdef Argument* argument
        cdef LaunchConfig* config
        for i in range(self.num_arguments):
            argument = &self.arguments[i]
            pointers[i] = &values[i]
            sizes[i] = UNKNOWN_BYTES
            if argument.descriptor >= 0:
                pointers[i] = maps + argument.descriptor * MAP_BYTES
            elif argument.param < 0:
                values[i] = self._evaluate(&argument.value, variables)
                if not argument.low <= values[i] <= argument.high:
                    raise errors.bad_expression(
                        self.plan, f"{values[i]} for a kernel argument of fewer bits")
            elif self.params[argument.param].is_tensor:
                values[i] = <int64_t><uintptr_t>tensors[argument.param].data
                sizes[i] = bytes_of(&tensors[argument.param])
            else:
                values[i] = scalars[argument.param]
        for k in range(self.num_kernels):
            config = &configs[k]
            config.cooperative = self.kernels[k].cooperative
            config.argument_bytes = sizes + self.kernels[k].first_argument
            config.window_bytes = 0
            if self.kernels[k].window_param >= 0:
                config.window = tensors[self.kernels[k].window_param].data
                config.window_bytes = bytes_of(&tensors[self.kernels[k].window_param])
            for i in range(7):
                value = self._evaluate(&self.kernels[k].extents[i], variables)
                limit = EXTENT_LIMITS[i] if i < 6 else self.kernels[k].shared_limit
                if not 0 <= value <= limit:
                    raise errors.bad_extent(self.plan, k, i, value, limit)
                config.extents[i] = <unsigned>value
            if self.kernels[k].persistent:
                config.extents[0] = min(config.extents[0], multiprocessors)
            for i in range(3):
                config.cluster[i] = self.kernels[k].cluster[i]
                if config.extents[i] % config.cluster[i] != 0:
                    raise errors.bad_cluster(self.plan, k, [config.extents[j] for j in range(3)])
        return 0

    cdef int _make_map(
        self, int index, DLTensor* tensors, int64_t* variables, int64_t* scalars, int device_id,
        char* out,
    ) except -1:
        """Writes the tensor map of one descriptor to `out`; of one of peers, the address of its maps."""
        cdef TensorMap* map = &self.descriptors[index]
        cdef int64_t key[2 + 2 * MAX_RANK]
        cdef int d
        key[0] = device_id
        if self.params[map.param].is_tensor:
            key[1] = <int64_t><uintptr_t>tensors[map.param].data
        else:
            key[1] = scalars[map.param]
        for d in range(MAX_RANK):
            key[2 + d] = self._evaluate(&map.shape[d], variables)
            key[2 + MAX_RANK + d] = self._evaluate(&map.strides[d], variables)
        if not map.made or memcmp(key, map.key, sizeof(key)) != 0:
            numbers = tuple([key[d] for d in range(2 + 2 * MAX_RANK)])
            made = None if map.peers else self.maps.get((index, numbers))
            if made is None:
                shape = numbers[2 : 2 + map.rank]
                strides = numbers[2 + MAX_RANK : 1 + MAX_RANK + map.rank]
                made = self.encode(self.plan.descriptors[index], numbers[1], shape, strides)
                if len(made) != MAP_BYTES:
                    raise RuntimeError(f"{self.plan.where()}: a tensor map of {len(made)} bytes")
                if map.peers:
                    memcpy(out, <char*>(<bytes>made), MAP_BYTES)
                    return 0
                if len(self.maps) >= MAX_MAPS:
                    self.maps.clear()
                self.maps[(index, numbers)] = made
            memcpy(map.bytes, <char*>(<bytes>made), MAP_BYTES)
            memcpy(map.key, key, sizeof(key))
            map.made = True
        # Another thread may make another map in this place while the driver has ours.
        memcpy(out, map.bytes, MAP_BYTES)
        return 0

    cdef int _load(self, int device_id) except -1:
        cdef Device* device = &self.devices[device_id]
        context, functions = self.load(device_id)
        if len(functions) != self.num_kernels:
            raise RuntimeError(
                f"{self.plan.where()}: {self.num_kernels} functions wanted, got {len(functions)}")
        limit = 0
        if self.window_limit is not None and any(k.l2_hit_ratio for k in self.plan.kernels):
            limit = self.window_limit(device_id)
        multiprocessors = 0
        if any(k.persistent for k in self.plan.kernels):
            multiprocessors = self.multiprocessors(device_id)
        # A second thread may have come first while `load` ran.
        if not device.loaded:
            device.functions = <void**>allocate(self.num_kernels, sizeof(void*))
            for i, function in enumerate(functions):
                device.functions[<int>i] = <void*><uintptr_t>function
            device.context = <void*><uintptr_t>context
            device.window_limit = limit
            device.multiprocessors = multiprocessors
            device.loaded = True
        return 0

    cdef int _launch(
        self, int device_id, DLTensor* tensors, void** pointers, LaunchConfig* configs
    ) except -1:
        cdef Device* device = &self.devices[device_id]
        cdef void* stream = NULL
        cdef void* context = NULL
        cdef int status, k
        if self.hip is not None:
            return self.hip.launch(self, device, device_id, pointers, configs)
        if self.launch_kernel is NULL:
            from tilelang.emulator.machine import current_machine

            machine = current_machine()
            for k in range(self.num_kernels):
                configs[k].machine = <const void*><uintptr_t>ctypes.addressof(machine)
                self._launch_emulated(device, k, tensors, pointers, &configs[k])
            return 0
        torch_api.current_work_stream(self.device_type, device_id, &stream)
        status = self.get_context(&context)
        if status:
            raise errors.driver_call(self.plan, "cuCtxGetCurrent", status)
        if context == device.context:
            return self._launch_cuda(device, stream, pointers, configs)
        status = self.push_context(device.context)
        if status:
            raise errors.driver_call(self.plan, "cuCtxPushCurrent", status)
        try:
            return self._launch_cuda(device, stream, pointers, configs)
        finally:
            self.pop_context(&context)

    cdef int _launch_cuda(
        self, Device* device, void* stream, void** pointers, LaunchConfig* configs
    ) except -1:
        cdef unsigned* e
        cdef int status, i, k
        cdef LaunchKernelEx launch = self.launch_kernel
        cdef void** args
        cdef CUlaunchConfig config
        cdef CUlaunchAttribute attributes[4]
        config.stream = stream
        config.attributes = attributes
        for k in range(self.num_kernels):
            e = configs[k].extents
            if e[0] == 0 or e[1] == 0 or e[2] == 0:
                continue
            for i in range(3):
                config.grid[i] = e[i]
                config.block[i] = e[3 + i]
            config.shared_bytes = e[6]
            config.num_attributes = set_attributes(
                attributes, &configs[k], &self.kernels[k], device.window_limit)
            args = &pointers[self.kernels[k].first_argument]
            # The driver blocks when its queue is full; other threads go on.
            with nogil:
                status = launch(&config, device.functions[k], args, NULL)
            if status:
                raise errors.launch_failed(self.plan, k, [e[i] for i in range(7)], status)
        return 0

    cdef int _launch_emulated(
        self, Device* device, int k, DLTensor* tensors, void** pointers, LaunchConfig* config
    ) except -1:
        cdef char* report = NULL
        cdef int status
        cdef LaunchEmulated launch = <LaunchEmulated>device.functions[k]
        cdef void** args = &pointers[self.kernels[k].first_argument]
        if config.extents[0] == 0 or config.extents[1] == 0 or config.extents[2] == 0:
            return 0
        with nogil:
            status = launch(config, args, &report)
        if status:
            text = "the kernel failed, and there was no memory to say how"
            if report is not NULL:
                text = (<bytes>report).decode("utf-8", "replace")
                free(report)
            arguments = describe_arguments(self, k, tensors)
            reports = self.explain(self.plan.kernels[k].name, text, arguments)
            raise errors.emulated_failed(self.plan, k, reports)
        return 0


include "_exchange.pxi"
