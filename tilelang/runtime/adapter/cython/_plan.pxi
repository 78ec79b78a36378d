"""What the adapter reads and calls, declared: DLPack, the CUDA driver, the emulator; and the plan in
C, with the code of its expressions."""

from cpython.object cimport PyObject, PyObject_Call, PyObject_TypeCheck, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

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
    kDLComplex = 5
    kDLROCM = 10


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

# CUaccessPolicyWindow of the driver (CUDA Driver API, "Data types used by CUDA driver").
ctypedef struct AccessPolicyWindow:
    const void* base
    size_t bytes
    float hit_ratio
    int hit_property
    int miss_property

cdef enum:
    CU_ACCESS_PROPERTY_NORMAL = 0
    CU_ACCESS_PROPERTY_PERSISTING = 2

cdef enum:
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6

ctypedef int (*LaunchKernelEx)(
    const CUlaunchConfig* config, void* function, void** args, void** extra) noexcept nogil
ctypedef int (*GetCurrentContext)(void** context) noexcept nogil
ctypedef int (*PushContext)(void* context) noexcept nogil
ctypedef int (*PopContext)(void** context) noexcept nogil

# HIP Runtime API, "Module Management" and "Device Management".
ctypedef int (*HipModuleLaunchKernel)(
    void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** args,
    void** extra) noexcept nogil
ctypedef int (*HipGetDevice)(int* device) noexcept nogil
ctypedef int (*HipSetDevice)(int device) noexcept nogil

ctypedef struct LaunchConfig:
    unsigned extents[7]  # grid, block, bytes of dynamic shared memory
    unsigned cluster[3]
    unsigned cooperative
    const unsigned long* argument_bytes  # those that each pointer leads to
    const void* machine  # how the emulator runs it
    # The emulator has no caches and does not know what follows.
    const void* window  # the tensor that persists in L2
    unsigned long window_bytes

ctypedef int (*LaunchEmulated)(
    const LaunchConfig* config, void** args, char** report) noexcept nogil


# Of an argument that is no tensor: kUnknownBytes in src/device/emu/tl/check.h.
cdef unsigned long UNKNOWN_BYTES = <unsigned long>-1

# The plan in C. Expressions are postfix code on a small stack; a constant has none.

cdef enum:
    MAX_DEPTH = 32
    MAX_DEVICES = 64
    ALIGNMENT = 16
    MAP_BYTES = 128  # of a CUtensorMap, which is aligned to 64
    MAP_ALIGNMENT = 64
    MAX_RANK = 5  # of a tensor map
    MAX_MAPS = 1024  # that are kept
    MAX_FACTORS = 5  # of a guard: tilelang.engine.launch_plan

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

# The arguments of a call: torch tensors; among them None, arrays of other libraries, tensors that
# begin where the plan's variant does not take them.
cdef enum Form:
    OF_TENSORS = 0
    WITH_NONE = 1
    FOREIGN = 2
    MISALIGNED = 4

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
    int offset  # the variable that is its offset from a multiple of 16 bytes, or -1
    int packing  # elements of the plan in one of the tensor's, in the last dimension
    int scalar_kind
    int variable

# A tensor map: its tensor, and the one that was made last. `key` has the device, the address, the
# extents and the strides that it was made for.
ctypedef struct TensorMap:
    int param
    int rank
    bint peers  # a map for each rank; the adapter keeps none, who has the tensor's table does
    Expression shape[MAX_RANK]
    Expression strides[MAX_RANK]
    bint made
    int64_t key[2 + 2 * MAX_RANK]
    char bytes[MAP_BYTES]

ctypedef struct Argument:
    int param  # -1: `value`, or the tensor map `descriptor`
    int descriptor  # -1: none
    Expression value
    int64_t low
    int64_t high

ctypedef struct Kernel:
    Expression extents[7]  # grid, block, shared bytes
    int64_t shared_limit
    unsigned cluster[3]
    bint cooperative
    bint persistent
    bint dependent
    int window_param  # the tensor that persists in L2, or -1
    float hit_ratio
    int first_argument
    int num_arguments

ctypedef struct Device:
    bint loaded
    unsigned long window_limit  # bytes that may persist in L2
    unsigned multiprocessors  # 0 where no kernel is persistent
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


cdef inline int bytes_of_element(const DLTensor* tensor) noexcept nogil:
    return (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8


cdef inline unsigned long bytes_of(const DLTensor* tensor) noexcept nogil:
    """Bytes from a tensor's address to its last element."""
    cdef int64_t span = 1, size = 1
    cdef int d
    for d in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[d] == 0:
            return 0
        span += (tensor.shape[d] - 1) * (size if tensor.strides is NULL else tensor.strides[d])
        size *= tensor.shape[d]
    return tensor.byte_offset + span * bytes_of_element(tensor)


cdef inline int64_t extent_of(const DLTensor* tensor, const Param* param, int d) noexcept nogil:
    """An extent in the plan's elements."""
    return tensor.shape[d] * (param.packing if d == param.ndim - 1 else 1)


cdef inline int64_t stride_of(const DLTensor* tensor, const Param* param, int d) noexcept nogil:
    """A stride in the plan's elements; that of packed neighbours is 1 where bytes are neighbours."""
    return tensor.strides[d] * (1 if d == param.ndim - 1 else param.packing)


cdef unsigned set_attributes(
    CUlaunchAttribute* out, const LaunchConfig* config, const Kernel* kernel,
    unsigned long window_limit
) noexcept:
    """Writes the launch attributes that a kernel needs; returns how many there are."""
    cdef unsigned count = 0
    cdef AccessPolicyWindow* window
    cdef int i
    if window_limit and config.window_bytes:
        out[count].id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        window = <AccessPolicyWindow*>out[count].value
        window.base = config.window
        window.bytes = min(config.window_bytes, window_limit)
        window.hit_ratio = kernel.hit_ratio
        window.hit_property = CU_ACCESS_PROPERTY_PERSISTING
        window.miss_property = CU_ACCESS_PROPERTY_NORMAL
        count += 1
    if config.cluster[0] != 1 or config.cluster[1] != 1 or config.cluster[2] != 1:
        out[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        for i in range(3):
            out[count].value[i] = config.cluster[i]
        count += 1
    if config.cooperative:
        out[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        out[count].value[0] = 1
        count += 1
    if kernel.dependent:
        out[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
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


cdef inline char* aligned(char* memory, uintptr_t alignment) noexcept nogil:
    return memory + (alignment - <uintptr_t>memory % alignment) % alignment


cdef inline bint is_foreign(arg):
    """Whether an argument is an array of another library."""
    return not PyObject_TypeCheck(arg, <PyTypeObject*>torch_tensor) and hasattr(arg, "__dlpack__")
