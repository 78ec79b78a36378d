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

from tilelang.runtime.adapter import errors, positional
from tilelang.engine.launch_plan import COMPARISONS, PointerParam, TensorParam
from tilelang.engine.symbols import evaluate
from tilelang.utils import dtypes

include "_plan.pxi"
include "_variants.pxi"
include "_environment.pxi"
include "_callee.pxi"


cdef class Launcher:
    """Calls the kernels of a launch plan: ``launcher(*inputs)``.

    `load(device)` gives ``(context, [function, ...])``, addresses for one device in the plan's
    order of kernels; it is called once per device. `driver` holds the addresses of cuLaunchKernelEx,
    cuCtxGetCurrent, cuCtxPushCurrent and cuCtxPopCurrent; None runs emulated kernels on CPU tensors
    (docs/design.md, section 5). `device` is where the tensors are, by default the driver's: another
    one is for a driver that stands in for CUDA's. `encode(descriptor, address, shape, byte_strides)` gives the 128
    bytes of a tensor map; it is called when a map is wanted for the first time.
    `window_limit(device)` gives how many bytes of a tensor may persist in the L2 cache; it is
    called, once per device, where a kernel wants that. `otherwise(number)` gives the launcher of
    one of the plan's other variants; it is called when a call needs it.

    One output is returned as a tensor, several as a list, none as None.

    Raises `ValueError` where an argument's count, rank, dtype, shape, strides, device or alignment
    is wrong, `TypeError` where it is no tensor or no number, `RuntimeError` where the launch fails.
    Nothing runs after an error.
    """

    cdef readonly object plan
    cdef readonly str device  # "cuda" or "cpu"
    cdef object load, explain, encode, window_limit, allocated, allocated_dtypes, empty_options
    cdef object otherwise
    cdef Variants variants
    cdef object same_as  # a launcher that has read a call for this one
    cdef dict variables  # the place of each variable in an array
    cdef int num_solutions, num_requirements
    cdef Expression* solutions
    cdef Expression* requirements  # two each
    cdef dict maps  # the bytes of every tensor map that was made, by descriptor and key
    cdef int num_descriptors
    cdef TensorMap* descriptors
    cdef int num_params, num_inputs, num_outputs, num_allocated, num_variables
    cdef int num_kernels, num_arguments, num_instructions
    cdef int device_type
    cdef size_t scratch_bytes
    cdef int* inputs
    cdef Param* params
    cdef Kernel* kernels
    cdef Argument* arguments
    cdef Instruction* code
    cdef Device devices[MAX_DEVICES]
    cdef LaunchKernelEx launch_kernel
    cdef GetCurrentContext get_context
    cdef PushContext push_context
    cdef PopContext pop_context

    def __init__(
        self, plan, load, driver=None, explain=None, encode=None, window_limit=None, device=None,
        otherwise=None,
    ):
        if self.plan is not None:
            raise RuntimeError("a Launcher is initialised once")
        self.plan = plan
        self.load = load
        self.explain = explain
        self.encode = encode
        self.window_limit = window_limit
        self.otherwise = otherwise
        self.maps = {}
        self.device = device or ("cpu" if driver is None else "cuda")
        self.device_type = kDLCUDA if self.device == "cuda" else kDLCPU
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
        if self.params is not NULL:
            for i in range(self.num_params):
                free(self.params[i].shape)
                free(self.params[i].strides)
                free(self.params[i].types)
        for i in range(MAX_DEVICES):
            free(self.devices[i].functions)
        free(self.solutions)
        free(self.requirements)
        free(self.inputs)
        free(self.params)
        free(self.kernels)
        free(self.arguments)
        free(self.descriptors)
        free(self.code)

    # Encoding a plan.

    cdef _encode_params(self):
        cdef int i
        plan = self.plan
        definitions = plan.sources.definitions
        solutions = plan.sources.solutions
        variables = {name: i for i, name in enumerate((*definitions, *solutions))}
        defined = {(d.param, d.kind, d.dim): variables[name] for name, d in definitions.items()}
        self.variables = variables
        self.num_variables = len(variables)
        self.num_solutions = len(solutions)
        self.solutions = <Expression*>allocate(self.num_solutions, sizeof(Expression))
        for i, (name, expr) in enumerate(solutions.items()):
            self.solutions[i] = self._encode(expr, variables, variables[name])
        self.variants = Variants(plan, variables, self.otherwise)
        self.num_requirements = len(plan.requirements)
        self.requirements = <Expression*>allocate(2 * self.num_requirements, sizeof(Expression))
        for i, requirement in enumerate(plan.requirements):
            self.requirements[2 * i] = self._encode(requirement.left, variables, -1)
            self.requirements[2 * i + 1] = self._encode(requirement.right, variables, -1)
        self.num_params = len(plan.params)
        self.num_inputs = len(plan.inputs)
        self.num_outputs = len(plan.outputs)
        self.allocated = plan.allocated
        self.num_allocated = len(plan.allocated)
        self.allocated_dtypes = [dtypes.torch_dtype(plan.params[i].dtype) for i in plan.allocated]
        self.inputs = <int*>allocate(self.num_inputs, sizeof(int))
        for i, index in enumerate(plan.inputs):
            self.inputs[i] = index
        self.params = <Param*>allocate(self.num_params, sizeof(Param))
        for i, param in enumerate(plan.params):
            self._encode_param(&self.params[i], i, param, defined, variables)

    cdef _encode_param(self, Param* out, int index, param, defined, variables):
        cdef int d
        out.is_tensor = isinstance(param, TensorParam)
        out.offset = -1
        if isinstance(param, PointerParam):
            out.scalar_kind = POINTER
            out.variable = -1
            if param.pointee is not None:
                self._encode_types(out, index, param.pointee)
            return
        if not out.is_tensor:
            bits = 64 if param.dtype == "handle" else dtypes.bits(param.dtype)
            kind = "uint" if param.dtype in ("handle", "bool") else param.dtype.rstrip("0123456789")
            kind = param.dtype if kind not in ("int", "uint") else kind
            if kind not in SCALAR_KINDS or bits > 64:
                raise errors.unsupported_dtype(self.plan, index)
            out.scalar_kind = SCALAR_KINDS[kind]
            out.variable = defined.get((index, "scalar", 0), -1)
            return
        out.row_major = param.strides is None
        out.offset = defined.get((index, "offset", 0), -1)
        out.packing = dtypes.packing(param.dtype)
        out.ndim = len(param.shape)
        out.shape = <Expression*>allocate(out.ndim, sizeof(Expression))
        out.strides = <Expression*>allocate(out.ndim, sizeof(Expression))
        for d in range(out.ndim):
            out.shape[d] = self._encode(
                param.shape[d], variables, defined.get((index, "shape", d), -1))
            if not out.row_major:
                out.strides[d] = self._encode(
                    param.strides[d], variables, defined.get((index, "stride", d), -1))
        self._encode_types(out, index, param.dtype)

    cdef _encode_types(self, Param* out, int index, str dtype):
        cdef int d
        types = dtypes.accepted_types(dtype)
        if not types:
            raise errors.unsupported_dtype(self.plan, index)
        out.num_types = len(types)
        out.types = <uint32_t*>allocate(out.num_types, sizeof(uint32_t))
        for d in range(out.num_types):
            code, bits, lanes = types[d]
            out.types[d] = pack(code, bits, lanes)

    cdef _encode_descriptors(self):
        cdef int i, d
        cdef TensorMap* out
        plan = self.plan
        variables = self.variables
        names = [param.name for param in plan.params]
        self.num_descriptors = len(plan.descriptors)
        self.descriptors = <TensorMap*>allocate(self.num_descriptors, sizeof(TensorMap))
        for i, descriptor in enumerate(plan.descriptors):
            out = &self.descriptors[i]
            out.param = names.index(descriptor.param)
            out.rank = len(descriptor.shape)
            for d in range(out.rank):
                out.shape[d] = self._encode(descriptor.shape[d], variables, -1)
            for d in range(out.rank - 1):
                out.strides[d] = self._encode(descriptor.strides[d], variables, -1)

    cdef _encode_kernels(self):
        cdef int i, k
        cdef Kernel* kernel
        plan = self.plan
        variables = self.variables
        names = {param.name: i for i, param in enumerate(plan.params)}
        maps = {descriptor.name: i for i, descriptor in enumerate(plan.descriptors)}
        self.num_kernels = len(plan.kernels)
        self.num_arguments = sum(len(kernel.args) for kernel in plan.kernels)
        self.kernels = <Kernel*>allocate(self.num_kernels, sizeof(Kernel))
        self.arguments = <Argument*>allocate(self.num_arguments, sizeof(Argument))
        first = 0
        for k in range(self.num_kernels):
            launch = plan.kernels[k]
            kernel = &self.kernels[k]
            kernel.first_argument = first
            kernel.num_arguments = len(launch.args)
            for i, extent in enumerate((*launch.grid, *launch.block, launch.shared_bytes)):
                kernel.extents[i] = self._encode(extent, variables, -1)
            for i, extent in enumerate(launch.cluster):
                kernel.cluster[i] = extent
            kernel.shared_limit = EXTENT_LIMITS[6]
            if launch.shared_limit is not None:
                kernel.shared_limit = launch.shared_limit
            kernel.cooperative = launch.cooperative
            kernel.dependent = launch.dependent
            kernel.window_param = -1
            if launch.l2_hit_ratio is not None:
                kernel.window_param = names[launch.l2_hit_ratio[0]]
                kernel.hit_ratio = launch.l2_hit_ratio[1]
            for i, arg in enumerate(launch.args):
                self._encode_argument(&self.arguments[first + i], arg, names, maps, variables)
            first += len(launch.args)

    cdef _encode_argument(self, Argument* out, arg, names, maps, variables):
        out.descriptor = -1
        if arg[0] == "param":
            out.param = names[arg[1]]
            return
        out.param = -1
        if arg[0] == "descriptor":
            out.descriptor = maps[arg[1]]
            return
        out.value = self._encode(arg[1], variables, -1)
        low, high = dtypes.integer_range(arg[2])
        out.low = low
        out.high = min(high, 2**63 - 1)

    cdef Expression _encode(self, expr, variables, int defines) except *:
        cdef Expression out
        cdef int i
        cdef Instruction* grown
        out.constant = 0
        out.start = self.num_instructions
        out.count = 0
        out.defines = defines
        if isinstance(expr, int):
            out.constant = expr
            return out
        code = []
        if postfix(expr, variables, code) > MAX_DEPTH:
            raise errors.bad_expression(self.plan, f"a too deeply nested expression, {expr}")
        out.count = len(code)
        grown = <Instruction*>allocate(out.start + out.count, sizeof(Instruction))
        for i in range(out.start):
            grown[i] = self.code[i]
        for i in range(out.count):
            opcode, operand = code[i]
            grown[out.start + i].opcode = opcode
            grown[out.start + i].operand = operand
        free(self.code)
        self.code = grown
        self.num_instructions = out.start + out.count
        return out

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
        self._prepare(tensors, variables, scalars, values, pointers, configs, sizes, maps)
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

    cdef int _read(
        self, tuple args, DLTensor* tensors, int64_t* variables, int64_t* scalars, int* device_id
    ) except -1:
        """Reads every argument; checks what needs no other argument, and defines the variables.
        Returns which form of call it is, as far as it has read."""
        cdef int i, d, index
        cdef int form = OF_TENSORS
        cdef Param* param
        cdef DLTensor* tensor
        for i in range(self.num_inputs):
            index = self.inputs[i]
            param = &self.params[index]
            arg = args[i]
            tensor = &tensors[index]
            if not param.is_tensor:
                if param.scalar_kind == POINTER:
                    if type(arg) is not int and is_foreign(arg):
                        return FOREIGN
                    self._read_pointer(arg, index, tensor, &scalars[index], device_id)
                else:
                    self._read_scalar(arg, index, &scalars[index])
                if param.variable >= 0:
                    variables[param.variable] = scalars[index]
                continue
            if arg is None:
                memset(tensor, 0, sizeof(DLTensor))
                form |= WITH_NONE
                continue
            if not PyObject_TypeCheck(arg, <PyTypeObject*>torch_tensor):
                if hasattr(arg, "__dlpack__"):
                    return FOREIGN
                raise errors.not_a_tensor(self.plan, index, arg)
            self._read_tensor(arg, index, tensor, device_id)
            if tensor.ndim != param.ndim:
                raise errors.wrong_rank(self.plan, index, arg)
            if param.offset >= 0:
                variables[param.offset] = self._take_offset(index, tensor)
            elif <uintptr_t>tensor.data % ALIGNMENT:
                form |= MISALIGNED
            for d in range(param.ndim):
                if param.shape[d].defines >= 0:
                    variables[param.shape[d].defines] = extent_of(tensor, param, d)
                if not param.row_major and param.strides[d].defines >= 0:
                    variables[param.strides[d].defines] = stride_of(tensor, param, d)
        return form

    cdef int _solve(self, int index, int64_t* variables) except -1:
        """Computes a variable that no place is by itself."""
        cdef int64_t value = self._evaluate(&self.solutions[index], variables)
        if value < 0:
            raise errors.negative_size(self.plan, index, value)
        variables[self.solutions[index].defines] = value
        return 0

    cdef int _define_without(
        self, tuple args, DLTensor* tensors, int64_t* variables, int64_t* scalars
    ) except -1:
        """Defines the variables of a call with None for tensors, by the other ones."""
        cdef int i
        cdef Param* param
        inputs = self.plan.inputs
        absent = frozenset([
            inputs[i] for i in range(self.num_inputs)
            if args[i] is None and self.params[self.inputs[i]].is_tensor])
        sources = self.plan.sources_without(absent)
        if isinstance(sources, int):
            raise errors.not_a_tensor(self.plan, sources, None)
        values = {}
        for name, place in sources.definitions.items():
            i = place.param
            param = &self.params[i]
            if place.kind == "scalar":
                values[name] = scalars[i]
            elif place.kind == "shape":
                values[name] = extent_of(&tensors[i], param, place.dim)
            else:
                values[name] = stride_of(&tensors[i], param, place.dim)
        for name, expr in sources.solutions.items():
            try:
                values[name] = evaluate(expr, values)
            except ZeroDivisionError as error:
                raise errors.bad_expression(self.plan, "a division by 0") from error
        for name, place in self.variables.items():
            value = values.get(name, 0)
            if not -(2**63) <= value < 2**63:
                raise errors.bad_expression(self.plan, "a number that does not fit 64 bits")
            variables[<int>place] = value
        return 0

    cdef int _read_tensor(self, arg, int index, DLTensor* tensor, int* device_id) except -1:
        """Reads one tensor; checks dtype, device and alignment."""
        cdef Param* param = &self.params[index]
        cdef uint32_t found
        cdef int t
        try:
            torch_api.dltensor_from_py_object_no_sync(<PyObject*>arg, tensor)
        except RuntimeError as error:
            raise errors.unreadable(self.plan, index, arg) from error
        if tensor.data is NULL and arg.numel():
            raise errors.unreadable(self.plan, index, arg)
        found = pack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        for t in range(param.num_types):
            if param.types[t] == found:
                break
        else:
            # A pointer to anything has no types.
            if param.num_types:
                raise errors.wrong_dtype(self.plan, index, arg)
        if tensor.device.device_type != self.device_type:
            raise errors.wrong_device(self.plan, index, arg, self.device)
        if device_id[0] < 0:
            device_id[0] = tensor.device.device_id
        elif device_id[0] != tensor.device.device_id:
            raise errors.wrong_device(self.plan, index, arg, f"cuda:{device_id[0]}")
        tensor.data = <char*>tensor.data + tensor.byte_offset
        tensor.byte_offset = 0
        return 0

    cdef int64_t _take_offset(self, int index, DLTensor* tensor) except -1:
        """Moves a tensor's address to the multiple of 16 bytes in front of it; returns by how many
        elements."""
        cdef uintptr_t offset = <uintptr_t>tensor.data % ALIGNMENT
        cdef int size = bytes_of_element(tensor)
        if offset % size:
            raise errors.misaligned(self.plan, index, <uintptr_t>tensor.data, size)
        tensor.data = <char*>tensor.data - offset
        tensor.byte_offset = offset
        return offset // size

    cdef int _read_pointer(
        self, arg, int index, DLTensor* tensor, int64_t* out, int* device_id
    ) except -1:
        cdef uint64_t address
        if PyObject_TypeCheck(arg, <PyTypeObject*>torch_tensor):
            self._read_tensor(arg, index, tensor, device_id)
            if <uintptr_t>tensor.data % ALIGNMENT:
                raise errors.misaligned(self.plan, index, <uintptr_t>tensor.data)
            out[0] = <int64_t><uintptr_t>tensor.data
            return 0
        try:
            integer = operator.index(arg)
        except TypeError as error:
            raise errors.not_a_pointer(self.plan, index, arg) from error
        low, high = dtypes.integer_range("handle")
        if not low <= integer <= high:
            raise errors.out_of_range(self.plan, index, integer, low, high)
        address = integer
        if address % ALIGNMENT:
            raise errors.misaligned(self.plan, index, integer)
        (<uint64_t*>out)[0] = address
        return 0

    cdef int _read_scalar(self, arg, int index, int64_t* out) except -1:
        cdef int kind = self.params[index].scalar_kind
        cdef double number = 0
        dtype = self.plan.params[index].dtype
        try:
            if kind == SIGNED or kind == UNSIGNED:
                integer = operator.index(arg)
            else:
                number = arg
        except TypeError as error:
            raise errors.not_a_number(self.plan, index, arg) from error
        if kind == FLOAT32:
            (<float*>out)[0] = <float>number
        elif kind == FLOAT64:
            (<double*>out)[0] = number
        elif kind == FLOAT16:
            out[0] = dtypes.half_bits(number, dtype)
        else:
            low, high = dtypes.integer_range(dtype)
            if not low <= integer <= high:
                raise errors.out_of_range(self.plan, index, integer, low, high)
            if kind == SIGNED:
                out[0] = integer
            else:
                (<uint64_t*>out)[0] = integer
        return 0

    cdef int _check(self, arg, int index, DLTensor* tensor, int64_t* variables) except -1:
        """Checks shape and strides of one tensor against the plan."""
        cdef Param* param = &self.params[index]
        cdef int d
        cdef bint empty = False
        cdef bint unused
        cdef int64_t expected
        for d in range(param.ndim):
            expected = self._evaluate(&param.shape[d], variables)
            if extent_of(tensor, param, d) != expected:
                raise errors.wrong_shape(self.plan, index, arg, d, expected)
            empty |= expected == 0
        # DLPack before 1.2 leaves out the strides of a contiguous tensor.
        if empty or tensor.strides is NULL:
            return 0
        expected = 1
        for d in range(param.ndim - 1, -1, -1):
            if not param.row_major:
                expected = self._evaluate(&param.strides[d], variables)
            unused = tensor.shape[d] == 1 or (expected == 0 and not param.row_major)
            if stride_of(tensor, param, d) != expected and not unused:
                raise errors.wrong_strides(self.plan, index, arg, d, expected)
            if param.row_major:
                expected *= extent_of(tensor, param, d)
        return 0

    cdef int _require(self, int index, int64_t* variables) except -1:
        """Checks an assertion of the program on sizes."""
        left = self._evaluate(&self.requirements[2 * index], variables)
        right = self._evaluate(&self.requirements[2 * index + 1], variables)
        if not COMPARISONS[self.plan.requirements[index].comparison](left, right):
            raise errors.failed_assertion(self.plan, index, left, right)
        return 0

    cdef int64_t _evaluate(self, Expression* expr, int64_t* variables) except? -1:
        cdef int64_t stack[MAX_DEPTH]
        cdef int top = -1
        cdef int i, op
        cdef int64_t a, b
        cdef bint bad = False
        if expr.count == 0:
            return expr.constant
        for i in range(expr.start, expr.start + expr.count):
            op = self.code[i].opcode
            if op == OP_CONST or op == OP_VAR:
                top += 1
                a = self.code[i].operand
                stack[top] = a if op == OP_CONST else variables[a]
                continue
            b = stack[top]
            top -= 1
            a = stack[top]
            if op == OP_ADD:
                bad |= add_overflows(a, b, &stack[top])
            elif op == OP_SUB:
                bad |= sub_overflows(a, b, &stack[top])
            elif op == OP_MUL:
                bad |= mul_overflows(a, b, &stack[top])
            elif op == OP_MIN:
                stack[top] = a if a < b else b
            elif op == OP_MAX:
                stack[top] = a if a > b else b
            elif b == 0 or b == -1:
                # The hardware traps on 0 and on the smallest integer over -1.
                raise errors.bad_expression(self.plan, f"a division by {b}")
            elif op == OP_FLOORDIV:
                stack[top] = floordiv(a, b)
            elif op == OP_FLOORMOD:
                stack[top] = a - floordiv(a, b) * b
            else:
                stack[top] = -floordiv(-a, b)
        if bad:
            raise errors.bad_expression(self.plan, "a number that does not fit 64 bits")
        return stack[0]

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
            for i in range(3):
                config.cluster[i] = self.kernels[k].cluster[i]
                if config.extents[i] % config.cluster[i] != 0:
                    raise errors.bad_cluster(self.plan, k, [config.extents[j] for j in range(3)])
        return 0

    cdef int _make_map(
        self, int index, DLTensor* tensors, int64_t* variables, int64_t* scalars, int device_id,
        char* out,
    ) except -1:
        """Writes the tensor map of one descriptor to `out`."""
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
            made = self.maps.get((index, numbers))
            if made is None:
                shape = numbers[2 : 2 + map.rank]
                strides = numbers[2 + MAX_RANK : 1 + MAX_RANK + map.rank]
                made = self.encode(self.plan.descriptors[index], numbers[1], shape, strides)
                if len(made) != MAP_BYTES:
                    raise RuntimeError(f"{self.plan.where()}: a tensor map of {len(made)} bytes")
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
        # A second thread may have come first while `load` ran.
        if not device.loaded:
            device.functions = <void**>allocate(self.num_kernels, sizeof(void*))
            for i, function in enumerate(functions):
                device.functions[<int>i] = <void*><uintptr_t>function
            device.context = <void*><uintptr_t>context
            device.window_limit = limit
            device.loaded = True
        return 0

    cdef int _launch(
        self, int device_id, DLTensor* tensors, void** pointers, LaunchConfig* configs
    ) except -1:
        cdef Device* device = &self.devices[device_id]
        cdef void* stream = NULL
        cdef void* context = NULL
        cdef int status, k
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
