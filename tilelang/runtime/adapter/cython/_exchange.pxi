"""Arguments of other libraries than torch, which hand out their memory by DLPack."""

from cpython.pycapsule cimport PyCapsule_IsValid

# DLPack 1, of which only the flags are read.
ctypedef struct DLManagedTensorVersioned:
    uint32_t major
    uint32_t minor
    void* manager_context
    void* deleter
    uint64_t flags

cdef enum:
    DLPACK_FLAG_READ_ONLY = 1


cdef bint is_read_only(arg):
    """Whether a library says that nobody may write to the memory of its array."""
    try:
        capsule = arg.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than this keyword
        return False
    if not PyCapsule_IsValid(capsule, "dltensor_versioned"):
        return False
    managed = <DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
    return managed.flags & DLPACK_FLAG_READ_ONLY


cdef int refuse_reversed(arg) except -1:
    """Torch ends the process where an array's elements stand in reverse."""
    strides = getattr(arg, "strides", None)
    if isinstance(strides, tuple) and any(stride < 0 for stride in strides):
        raise BufferError("negative strides")
    return 0


cdef tuple exchanged(plan, tuple args):
    """The inputs of a call with torch tensors in the place of other arrays, at the same memory."""
    written = plan.written
    found = []
    for index, arg in zip(plan.inputs, args):
        param = plan.params[index]
        is_scalar = not isinstance(param, (TensorParam, PointerParam))
        if is_scalar or isinstance(arg, torch_tensor) or not hasattr(arg, "__dlpack__"):
            found.append(arg)
            continue
        try:
            if param.name in written and is_read_only(arg):
                raise errors.read_only(plan, index, arg)
            refuse_reversed(arg)
            found.append(torch.from_dlpack(arg))
        except (BufferError, RuntimeError, TypeError) as error:
            raise errors.not_exchanged(plan, index, arg, error) from error
    return tuple(found)


cdef list describe_arguments(Launcher launcher, int k, DLTensor* tensors):
    """The tensors among a kernel's arguments, for its reports."""
    from tilelang.emulator.buffers import Tensor

    cdef int i, d
    cdef Param* param
    cdef DLTensor* tensor
    cdef list found = []
    plan = launcher.plan
    for i in range(launcher.kernels[k].num_arguments):
        index = launcher.arguments[launcher.kernels[k].first_argument + i].param
        if index < 0 or not launcher.params[index].is_tensor:
            found.append(None)
            continue
        param = &launcher.params[index]
        tensor = &tensors[index]
        name, dtype = plan.params[index].name, plan.params[index].dtype
        if tensor.shape is NULL:  # None was passed
            nothing = [0] * param.ndim
            found.append(Tensor(name, nothing, nothing, dtypes.bits(dtype)))
            continue
        shape = [extent_of(tensor, param, d) for d in range(param.ndim)]
        if tensor.strides is NULL:
            strides = [math.prod(shape[d + 1 :]) for d in range(param.ndim)]
        else:
            strides = [stride_of(tensor, param, d) for d in range(param.ndim)]
        found.append(Tensor(name, shape, strides, dtypes.bits(dtype), tensor.byte_offset))
    return found
