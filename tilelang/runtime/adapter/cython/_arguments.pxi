# What a call is given: reading the arguments, the variables that they define, and the checks.


cdef bint may_be_lazy(const DLTensor* tensor):
    """Whether torch may keep a sign beside the memory: of complex numbers, and of their parts, in
    which no two elements lie side by side."""
    cdef int d
    if tensor.dtype.code == kDLComplex:
        return True
    for d in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[d] > 1:
            return tensor.strides is not NULL and tensor.strides[d] != 1
    return True


cdef class ArgumentReader(EncodedPlan):
    """Reads and checks the arguments of a call. Raises `ValueError` or `TypeError` for wrong ones."""

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
        if may_be_lazy(tensor) and (arg.is_neg() or arg.is_conj()):
            raise errors.lazy(self.plan, index, arg)
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
                # NumPy's bool, as a comparison gives it, has no __index__.
                integer = operator.index(bool(arg) if type(arg) is numpy_bool else arg)
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
