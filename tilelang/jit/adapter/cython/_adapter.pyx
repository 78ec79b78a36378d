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

import torch

from tilelang.jit.adapter import errors
from tilelang.emulator.machine import current_machine
from tilelang.emulator.buffers import Tensor
from tilelang.engine.launch_plan import PointerParam, TensorParam
from tilelang.utils import dtypes

from cpython.object cimport PyObject, PyObject_TypeCheck, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t, int64_t, int64_t*) nogil
    bint sub_overflows "__builtin_sub_overflow"(int64_t, int64_t, int64_t*) nogil
    bint mul_overflows "__builtin_mul_overflow"(int64_t, int64_t, int64_t*) nogil


# DLPack.

ctypedef struct DLDevice:
    int32_t device_type
    int32_t device_id

ctypedef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

ctypedef struct DLTensor:
    void* data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides
    uint64_t byte_offset

ctypedef struct DLPackExchangeAPI:
    uint32_t major
    uint32_t minor
    void* prev_api
    void* managed_tensor_allocator
    void* managed_tensor_from_py_object_no_sync
    void* managed_tensor_to_py_object_no_sync
    int (*dltensor_from_py_object_no_sync)(PyObject*, DLTensor*) except -1
    int (*current_work_stream)(int32_t, int32_t, void**) except -1

cdef enum:
    kDLCPU = 1
    kDLCUDA = 2


# Entry points of the CUDA driver (CUDA Driver API, "Execution Control", "Context Management") and
# of the emulator.

ctypedef struct CUlaunchAttribute:
    int id
    char pad[4]
    unsigned value[16]

ctypedef struct CUlaunchConfig:
    unsigned grid[3]
    unsigned block[3]
    unsigned shared_bytes
    void* stream
    CUlaunchAttribute* attributes
    unsigned num_attributes

cdef enum:
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4

ctypedef int (*LaunchKernelEx)(
    const CUlaunchConfig* config, void* function, void** args, void** extra) noexcept nogil
ctypedef int (*GetCurrentContext)(void** context) noexcept nogil
ctypedef int (*PushContext)(void* context) noexcept nogil
ctypedef int (*PopContext)(void** context) noexcept nogil

ctypedef struct LaunchConfig:
    unsigned extents[7]  # grid, block, bytes of dynamic shared memory
    unsigned cluster[3]
    unsigned cooperative
    const unsigned long* argument_bytes  # those that each pointer leads to
    const void* machine  # how the emulator runs it

ctypedef int (*LaunchEmulated)(
    const LaunchConfig* config, void** args, char* error, unsigned long error_size) noexcept nogil


# Of an argument that is no tensor: kUnknownBytes in src/device/emu/tl/check.h.
cdef unsigned long UNKNOWN_BYTES = <unsigned long>-1

# The plan in C. Expressions are postfix code on a small stack; a constant has none.

cdef enum:
    MAX_DEPTH = 32
    MAX_DEVICES = 64
    ERROR_BYTES = 65536
    ALIGNMENT = 16

cdef enum Opcode:
    OP_CONST
    OP_VAR
    OP_ADD
    OP_SUB
    OP_MUL
    OP_FLOORDIV
    OP_FLOORMOD
    OP_MIN
    OP_MAX
    OP_CEILDIV

ctypedef struct Instruction:
    int opcode
    int64_t operand

ctypedef struct Expression:
    int64_t constant
    int start
    int count
    int defines  # the variable that this place defines, or -1

ctypedef struct Param:
    bint is_tensor
    bint row_major
    int ndim
    Expression* shape
    Expression* strides
    uint32_t* types
    int num_types
    int packing  # elements of the plan in one of the tensor's, in the last dimension
    int scalar_kind
    int variable

ctypedef struct Argument:
    int param  # -1: `value`
    Expression value
    int64_t low
    int64_t high

ctypedef struct Kernel:
    Expression extents[7]  # grid, block, shared bytes
    unsigned cluster[3]
    bint cooperative
    int first_argument
    int num_arguments

ctypedef struct Device:
    bint loaded
    void* context
    void** functions

# Largest grid x, y, z and block x, y, z: CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability".
cdef int64_t* EXTENT_LIMITS = [2147483647, 65535, 65535, 1024, 1024, 64, 4294967295]

cdef object OPCODES = {
    "+": OP_ADD, "-": OP_SUB, "*": OP_MUL, "//": OP_FLOORDIV, "%": OP_FLOORMOD, "min": OP_MIN,
    "max": OP_MAX, "ceildiv": OP_CEILDIV,
}

cdef enum ScalarKind:
    SIGNED
    UNSIGNED
    FLOAT32
    FLOAT64
    FLOAT16
    POINTER

cdef object SCALAR_KINDS = {
    "int": SIGNED, "uint": UNSIGNED, "float32": FLOAT32, "float64": FLOAT64, "float16": FLOAT16,
    "bfloat16": FLOAT16,
}

cdef object torch_empty = torch.empty
cdef object torch_tensor = torch.Tensor
cdef object exchange_capsule = getattr(torch_tensor, "__dlpack_c_exchange_api__", None)
if exchange_capsule is None:
    raise ImportError(
        "tilelang reads tensors through DLPack's C exchange API, which torch "
        f"{torch.__version__} lacks. Install torch 2.11 or later."
    )
cdef DLPackExchangeAPI* torch_api = <DLPackExchangeAPI*>PyCapsule_GetPointer(
    exchange_capsule, "dlpack_exchange_api")
if torch_api.major != 1:
    raise ImportError(
        f"tilelang reads tensors through DLPack 1, torch {torch.__version__} has DLPack "
        f"{torch_api.major}. Install a torch release that offers DLPack 1."
    )


cdef inline uint32_t pack(uint32_t code, uint32_t bits, uint32_t lanes) noexcept nogil:
    return code | bits << 8 | lanes << 16


cdef inline int64_t floordiv(int64_t a, int64_t b) noexcept nogil:
    cdef int64_t quotient = a // b
    return quotient - 1 if a % b != 0 and (a < 0) != (b < 0) else quotient


cdef inline unsigned long bytes_of(const DLTensor* tensor) noexcept nogil:
    """Bytes from the first to the last element of a tensor."""
    cdef int64_t span = 1, size = 1
    cdef int d
    for d in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[d] == 0:
            return 0
        span += (tensor.shape[d] - 1) * (size if tensor.strides is NULL else tensor.strides[d])
        size *= tensor.shape[d]
    return span * ((tensor.dtype.bits * tensor.dtype.lanes + 7) // 8)


cdef inline int64_t extent_of(const DLTensor* tensor, const Param* param, int d) noexcept nogil:
    """An extent in the plan's elements."""
    return tensor.shape[d] * (param.packing if d == param.ndim - 1 else 1)


cdef inline int64_t stride_of(const DLTensor* tensor, const Param* param, int d) noexcept nogil:
    """A stride in the plan's elements; that of packed neighbours is 1 where bytes are neighbours."""
    return tensor.strides[d] * (1 if d == param.ndim - 1 else param.packing)


cdef class Launcher:
    """Calls the kernels of a launch plan: ``launcher(*inputs)``.

    `load(device)` gives ``(context, [function, ...])``, addresses for one device in the plan's
    order of kernels; it is called once per device. `driver` holds the addresses of cuLaunchKernelEx,
    cuCtxGetCurrent, cuCtxPushCurrent and cuCtxPopCurrent; None runs emulated kernels on CPU tensors
    (docs/design.md, section 5).

    One output is returned as a tensor, several as a list, none as None.

    Raises `ValueError` where an argument's count, rank, dtype, shape, strides, device or alignment
    is wrong, `TypeError` where it is no tensor or no number, `RuntimeError` where the launch fails.
    Nothing runs after an error.
    """

    cdef readonly object plan
    cdef readonly str device  # "cuda" or "cpu"
    cdef object load, explain, allocated, allocated_dtypes, torch_devices
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

    def __init__(self, plan, load, driver=None, explain=None):
        if self.plan is not None:
            raise RuntimeError("a Launcher is initialised once")
        self.plan = plan
        self.load = load
        self.explain = explain
        self.device_type = kDLCPU if driver is None else kDLCUDA
        self.device = "cpu" if driver is None else "cuda"
        if driver is not None:
            self.launch_kernel = <LaunchKernelEx><uintptr_t>driver[0]
            self.get_context = <GetCurrentContext><uintptr_t>driver[1]
            self.push_context = <PushContext><uintptr_t>driver[2]
            self.pop_context = <PopContext><uintptr_t>driver[3]
        self.torch_devices = {}
        self._encode_params()
        self._encode_kernels()
        # At least one byte: malloc may answer a request for none with NULL.
        self.scratch_bytes = (
            1
            + self.num_params * (sizeof(DLTensor) + sizeof(int64_t))
            + self.num_variables * sizeof(int64_t)
            + self.num_arguments * (sizeof(int64_t) + sizeof(void*))
            + self.num_kernels * sizeof(LaunchConfig)
            + self.num_arguments * sizeof(unsigned long)
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
        free(self.inputs)
        free(self.params)
        free(self.kernels)
        free(self.arguments)
        free(self.code)

    # Encoding a plan.

    cdef _encode_params(self):
        cdef int i
        plan = self.plan
        definitions = plan.definitions()
        variables = {name: i for i, name in enumerate(definitions)}
        defined = {(d.param, d.kind, d.dim): variables[name] for name, d in definitions.items()}
        self.num_variables = len(variables)
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

    cdef _encode_kernels(self):
        cdef int i, k
        cdef Kernel* kernel
        plan = self.plan
        variables = {name: i for i, name in enumerate(plan.definitions())}
        names = {param.name: i for i, param in enumerate(plan.params)}
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
            kernel.cooperative = launch.cooperative
            for i, arg in enumerate(launch.args):
                self._encode_argument(&self.arguments[first + i], arg, names, variables)
            first += len(launch.args)

    cdef _encode_argument(self, Argument* out, arg, names, variables):
        if arg[0] == "param":
            out.param = names[arg[1]]
            return
        out.param = -1
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
        cdef int64_t* values = scalars + self.num_params
        cdef void** pointers = <void**>(values + self.num_arguments)
        cdef LaunchConfig* configs = <LaunchConfig*>(pointers + self.num_arguments)
        cdef unsigned long* sizes = <unsigned long*>(configs + self.num_kernels)
        cdef int device_id = -1
        cdef int i
        cdef list results

        self._read(args, tensors, variables, scalars, &device_id)
        for i in range(self.num_inputs):
            if self.params[self.inputs[i]].is_tensor:
                self._check(args[i], self.inputs[i], &tensors[self.inputs[i]], variables)
        if device_id < 0:
            device_id = 0 if self.device_type == kDLCPU else torch.cuda.current_device()
        if device_id >= MAX_DEVICES:
            raise errors.too_many_devices(self.plan, device_id, MAX_DEVICES)
        if not self.devices[device_id].loaded:
            self._load(device_id)
        results = self._allocate(tensors, variables, device_id)
        self._prepare(tensors, variables, scalars, values, pointers, configs, sizes)
        self._launch(device_id, tensors, pointers, configs)
        if self.num_outputs == 0:
            return None
        return results[0] if self.num_outputs == 1 else results[: self.num_outputs]

    cdef int _read(
        self, tuple args, DLTensor* tensors, int64_t* variables, int64_t* scalars, int* device_id
    ) except -1:
        """Reads every argument; checks what needs no other argument, and defines the variables."""
        cdef int i, d, index
        cdef Param* param
        cdef DLTensor* tensor
        for i in range(self.num_inputs):
            index = self.inputs[i]
            param = &self.params[index]
            arg = args[i]
            tensor = &tensors[index]
            if not param.is_tensor:
                if param.scalar_kind == POINTER:
                    self._read_pointer(arg, index, tensor, &scalars[index], device_id)
                else:
                    self._read_scalar(arg, index, &scalars[index])
                if param.variable >= 0:
                    variables[param.variable] = scalars[index]
                continue
            if not PyObject_TypeCheck(arg, <PyTypeObject*>torch_tensor):
                raise errors.not_a_tensor(self.plan, index, arg)
            self._read_tensor(arg, index, tensor, device_id)
            if tensor.ndim != param.ndim:
                raise errors.wrong_rank(self.plan, index, arg)
            for d in range(param.ndim):
                if param.shape[d].defines >= 0:
                    variables[param.shape[d].defines] = extent_of(tensor, param, d)
                if not param.row_major and param.strides[d].defines >= 0:
                    variables[param.strides[d].defines] = stride_of(tensor, param, d)
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
        if <uintptr_t>tensor.data % ALIGNMENT:
            raise errors.misaligned(self.plan, index, <uintptr_t>tensor.data)
        return 0

    cdef int _read_pointer(
        self, arg, int index, DLTensor* tensor, int64_t* out, int* device_id
    ) except -1:
        cdef uint64_t address
        if PyObject_TypeCheck(arg, <PyTypeObject*>torch_tensor):
            self._read_tensor(arg, index, tensor, device_id)
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
        device = self.torch_devices.get(device_id)
        if device is None:
            device = torch.device(self.device, device_id)
            self.torch_devices[device_id] = device
        for i in range(self.num_allocated):
            index = self.allocated[i]
            param = &self.params[index]
            shape = tuple([
                self._evaluate(&param.shape[d], variables)
                // (param.packing if d == param.ndim - 1 else 1) for d in range(param.ndim)])
            if param.row_major:
                result = torch_empty(shape, dtype=self.allocated_dtypes[i], device=device)
            else:
                strides = tuple([
                    self._evaluate(&param.strides[d], variables)
                    // (1 if d == param.ndim - 1 else param.packing) for d in range(param.ndim)])
                result = torch.empty_strided(
                    shape, strides, dtype=self.allocated_dtypes[i], device=device)
            torch_api.dltensor_from_py_object_no_sync(<PyObject*>result, &tensors[index])
            results.append(result)
        return results

    cdef int _prepare(
        self, DLTensor* tensors, int64_t* variables, int64_t* scalars, int64_t* values,
        void** pointers, LaunchConfig* configs, unsigned long* sizes,
    ) except -1:
        """Computes what every kernel is launched with, so that a bad value stops all of them."""
        cdef int i, k
        cdef int64_t value
        cdef Argument* argument
        cdef LaunchConfig* config
        for i in range(self.num_arguments):
            argument = &self.arguments[i]
            pointers[i] = &values[i]
            sizes[i] = UNKNOWN_BYTES
            if argument.param < 0:
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
            for i in range(7):
                value = self._evaluate(&self.kernels[k].extents[i], variables)
                if not 0 <= value <= EXTENT_LIMITS[i]:
                    raise errors.bad_extent(self.plan, k, i, value, EXTENT_LIMITS[i])
                config.extents[i] = <unsigned>value
            for i in range(3):
                config.cluster[i] = self.kernels[k].cluster[i]
                if config.extents[i] % config.cluster[i] != 0:
                    raise errors.bad_cluster(self.plan, k, [config.extents[j] for j in range(3)])
        return 0

    cdef int _load(self, int device_id) except -1:
        cdef Device* device = &self.devices[device_id]
        context, functions = self.load(device_id)
        if len(functions) != self.num_kernels:
            raise RuntimeError(
                f"{self.plan.where()}: {self.num_kernels} functions wanted, got {len(functions)}")
        # A second thread may have come first while `load` ran.
        if not device.loaded:
            device.functions = <void**>allocate(self.num_kernels, sizeof(void*))
            for i, function in enumerate(functions):
                device.functions[<int>i] = <void*><uintptr_t>function
            device.context = <void*><uintptr_t>context
            device.loaded = True
        return 0

    cdef int _launch(
        self, int device_id, DLTensor* tensors, void** pointers, LaunchConfig* configs
    ) except -1:
        cdef Device* device = &self.devices[device_id]
        cdef void* stream = NULL
        cdef void* context = NULL
        cdef int status, k
        if self.device_type == kDLCPU:
            machine = current_machine()
            for k in range(self.num_kernels):
                configs[k].machine = <const void*><uintptr_t>ctypes.addressof(machine)
                self._launch_emulated(device, k, tensors, pointers, &configs[k])
            return 0
        torch_api.current_work_stream(kDLCUDA, device_id, &stream)
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
        cdef CUlaunchAttribute attributes[2]
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
            config.num_attributes = set_attributes(attributes, &configs[k])
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
        cdef char error[ERROR_BYTES]
        cdef int status
        cdef LaunchEmulated launch = <LaunchEmulated>device.functions[k]
        cdef void** args = &pointers[self.kernels[k].first_argument]
        if config.extents[0] == 0 or config.extents[1] == 0 or config.extents[2] == 0:
            return 0
        error[0] = 0
        with nogil:
            status = launch(config, args, error, ERROR_BYTES)
        if status:
            text = (<bytes>error).decode("utf-8", "replace")
            arguments = self._describe_arguments(k, tensors)
            reports = self.explain(self.plan.kernels[k].name, text, arguments)
            raise errors.emulated_failed(self.plan, k, reports)
        return 0

    cdef list _describe_arguments(self, int k, DLTensor* tensors):
        """The tensors among a kernel's arguments, for its reports."""
        cdef int i, d
        cdef Param* param
        cdef DLTensor* tensor
        cdef list found = []
        for i in range(self.kernels[k].num_arguments):
            index = self.arguments[self.kernels[k].first_argument + i].param
            if index < 0 or not self.params[index].is_tensor:
                found.append(None)
                continue
            param = &self.params[index]
            tensor = &tensors[index]
            shape = [extent_of(tensor, param, d) for d in range(param.ndim)]
            if tensor.strides is NULL:
                strides = [math.prod(shape[d + 1 :]) for d in range(param.ndim)]
            else:
                strides = [stride_of(tensor, param, d) for d in range(param.ndim)]
            name, dtype = self.plan.params[index].name, self.plan.params[index].dtype
            found.append(Tensor(name, shape, strides, dtypes.bits(dtype)))
        return found


cdef unsigned set_attributes(CUlaunchAttribute* out, const LaunchConfig* config) noexcept:
    """Writes the launch attributes that `config` needs; returns how many there are."""
    cdef unsigned count = 0
    cdef int i
    if config.cluster[0] != 1 or config.cluster[1] != 1 or config.cluster[2] != 1:
        out[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        for i in range(3):
            out[count].value[i] = config.cluster[i]
        count += 1
    if config.cooperative:
        out[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        out[count].value[0] = 1
        count += 1
    return count


cdef void* allocate(size_t count, size_t size) except NULL:
    cdef void* memory = calloc(count if count else 1, size)
    if memory is NULL:
        raise MemoryError()
    return memory


cdef int postfix(expr, variables, list code) except -1:
    """Appends the postfix code of `expr`; returns how deep its stack is."""
    cdef int left, right
    if isinstance(expr, int):
        code.append((OP_CONST, expr))
        return 1
    if expr[0] == "var":
        code.append((OP_VAR, variables[expr[1]]))
        return 1
    left = postfix(expr[1], variables, code)
    right = postfix(expr[2], variables, code)
    code.append((OPCODES[expr[0]], 0))
    return max(left, right + 1)
