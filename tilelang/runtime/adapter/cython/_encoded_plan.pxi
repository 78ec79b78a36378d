# The launch plan as arrays that a call reads without Python objects, and the value of its expressions.


cdef class EncodedPlan:
    """A launch plan in C: its parameters, tensor maps, kernels and expressions.

    Raises `ValueError` for a plan that cannot be encoded, and where an expression has no value.
    """

    cdef readonly object plan
    cdef readonly str device  # "cuda" or "cpu"
    cdef object allocated, allocated_dtypes, otherwise
    cdef Variants variants
    cdef dict variables  # the place of each variable in an array
    cdef int num_solutions, num_requirements
    cdef Expression* solutions
    cdef Expression* requirements  # two each
    cdef int num_descriptors
    cdef TensorMap* descriptors
    cdef int num_params, num_inputs, num_outputs, num_allocated, num_variables
    cdef int num_kernels, num_arguments, num_instructions
    cdef int device_type
    cdef int* inputs
    cdef Param* params
    cdef Kernel* kernels
    cdef Argument* arguments
    cdef Instruction* code

    def __dealloc__(self):
        cdef int i
        if self.params is not NULL:
            for i in range(self.num_params):
                free(self.params[i].shape)
                free(self.params[i].strides)
                free(self.params[i].types)
        free(self.solutions)
        free(self.requirements)
        free(self.inputs)
        free(self.params)
        free(self.kernels)
        free(self.arguments)
        free(self.descriptors)
        free(self.code)

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
            out.peers = descriptor.peers
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
            kernel.persistent = launch.persistent
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
