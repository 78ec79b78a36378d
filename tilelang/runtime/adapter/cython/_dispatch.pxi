"""From the arguments of a call to the kernel that an earlier call has found, without a Python frame.

A call is found in four steps: its *form* (how many positional arguments, which keywords), its
compile-time arguments, what the trace with them has read (a `Version`), and the constants that are
read off its tensors, with the state of the surroundings. What is not found, or unusual, goes to
Python, which knows all of it and keeps what it finds here.

All of it runs under the interpreter's lock, and another thread runs in between at most where a
`Snapshot` calls a function of Python. It finds whole tables then, and so does this one behind it:
tables gain nodes or are replaced, and a call holds the nodes that it looks at. What another thread
changes during a call may count for that call or not.
"""

from cpython.ref cimport Py_INCREF

cdef extern from "Python.h":
    tuple new_tuple "PyTuple_New"(Py_ssize_t count)
    int PyTuple_SetItem(PyObject* values, Py_ssize_t index, PyObject* value) except -1

cdef enum:
    MOST_ARGUMENTS = 32
    MOST_FORMS = 16
    MOST_NODES = 4096  # of a table

cdef enum ReadKind:
    EXTENT
    STRIDE
    DTYPE

cdef object READ_KINDS = {"shape": EXTENT, "stride": STRIDE, "dtype": DTYPE}

# A constant that is read off the argument of a parameter.
ctypedef struct ConstantRead:
    int parameter
    int rank  # that the parameter's tensor has
    int kind
    int dim


cdef inline uint64_t mixed(uint64_t hash, uint64_t value) noexcept nogil:
    """FNV's step (http://www.isthe.com/chongo/tech/comp/fnv), of 64 bits in the place of 8, and the
    high bits to the low ones, which select."""
    hash = (hash ^ value) * <uint64_t>0x100000001B3
    return hash ^ (hash >> 29)


cdef uint64_t hash_of(PyObject* value, uint64_t hash, int depth) except? 0:
    """Continues a hash that is equal for values that are `same`."""
    cdef Py_ssize_t i, count
    kind = type(<object>value)
    if kind is int or kind is float or PyObject_TypeCheck(<object>value, <PyTypeObject*>str):
        return mixed(hash, <uint64_t>PyObject_Hash(<object>value))
    if kind is dict:
        return mixed(hash, <uint64_t>PyDict_Size(<object>value))
    if kind is not tuple and kind is not list:
        return mixed(hash, <uint64_t><uintptr_t>value)  # None, bool and what is one object
    count = PyTuple_Size(value) if kind is tuple else PyList_Size(value)
    if depth < MOST_DEPTH:
        for i in range(count):
            hash = hash_of(
                PyTuple_GetItem(value, i) if kind is tuple else PyList_GetItem(value, i),
                hash, depth + 1)
    return mixed(hash, <uint64_t>count)


cdef class Node:
    """An entry of a table."""

    cdef Node next
    cdef uint64_t hash


cdef class Table:
    """Nodes by their hash."""

    cdef list buckets  # of the first node, or None
    cdef int count

    def __cinit__(self):
        self.buckets = [None] * 8

    cdef Node first(self, uint64_t hash):
        """The first node of the bucket of a hash."""
        cdef PyObject* buckets = <PyObject*>self.buckets
        return <Node>PyList_GetItem(buckets, hash & <uint64_t>(PyList_Size(buckets) - 1))

    cdef add(self, Node node):
        cdef Node moved
        if self.count >= MOST_NODES:
            self.buckets, self.count = [None] * 8, 0
        elif self.count > len(self.buckets):
            old, self.buckets = self.buckets, [None] * (4 * len(self.buckets))
            for chain in old:
                while chain is not None:
                    moved, chain = <Node>chain, (<Node>chain).next
                    self.put(moved)
        self.put(node)
        self.count += 1

    cdef put(self, Node node):
        cdef Py_ssize_t bucket = node.hash & <uint64_t>(len(self.buckets) - 1)
        node.next = <Node>self.buckets[bucket]
        self.buckets[bucket] = node


cdef class FoundKernel(Node):
    """The kernel of constants that were read off tensors, in one state of the surroundings."""

    cdef int64_t constants[MOST_ARGUMENTS]
    cdef object state, kernel


cdef class Choice(Node):
    """Compile-time arguments, and the versions of what a trace with them has read."""

    cdef tuple arguments
    cdef Snapshots versions


cdef class CallForm:
    """How a call is written: the number of its positional arguments, and its keywords in order.

    `positions` says for each parameter which argument it is, positional ones first, -1 for its
    default.
    """

    cdef int num_args, num_values, num_constants
    cdef tuple names, defaults
    cdef int positions[MOST_ARGUMENTS]
    cdef int constants[MOST_ARGUMENTS]  # positions of compile-time arguments
    cdef bint whole  # whether the positional arguments are those of the kernel
    cdef Table choices

    cdef bint fits(self, int num_args, dict kwargs) except -1:
        """Whether a call has this form."""
        cdef Py_ssize_t place = 0
        cdef PyObject* name
        cdef PyObject* own
        cdef int i = 0
        if num_args != self.num_args or num_args + PyDict_Size(kwargs) != self.num_values:
            return False
        while PyDict_Next(kwargs, &place, &name, NULL):
            own = PyTuple_GetItem(<PyObject*>self.names, i)
            if own != name and not PyObject_RichCompareBool(<object>own, <object>name, Py_EQ):
                return False
            i += 1
        return True

    cdef PyObject* value(self, int parameter, PyObject** values) except NULL:
        """What a call passes, a borrowed reference."""
        cdef int position = self.positions[parameter]
        if position < 0:
            return PyTuple_GetItem(<PyObject*>self.defaults, parameter)
        return values[position]

    cdef uint64_t hash_of_constants(self, PyObject** values) except? 0:
        cdef uint64_t hash = 14695981039346656037
        cdef int i
        for i in range(self.num_constants):
            hash = hash_of(values[self.constants[i]], hash, 0)
        return hash

    cdef Choice choice(self, PyObject** values, uint64_t hash):
        """That of a call's compile-time arguments."""
        cdef Choice found = <Choice>self.choices.first(hash)
        cdef PyObject* kept
        cdef int i
        while found is not None:
            if found.hash == hash:
                for i in range(self.num_constants):
                    kept = PyTuple_GetItem(<PyObject*>found.arguments, i)
                    if not same(kept, values[self.constants[i]], 0):
                        break
                else:
                    return found
            found = <Choice>found.next
        return None


@cython.auto_pickle(False)
cdef class Version:
    """The base of what is made for one set of compile-time arguments and of what its trace has read.

    Parameters are numbered in the signature's order. `reads` are the constants that a kernel is
    for, each as ``(parameter, rank, "shape" | "stride" | "dtype", dim)``; `inputs` are the
    parameters that a kernel is called with, None where a call only gives the kernel.
    """

    cdef int num_reads, num_inputs
    cdef ConstantRead reads[MOST_ARGUMENTS]
    cdef int inputs[MOST_ARGUMENTS]
    cdef bint calls
    cdef bint known  # whether calls may be found here
    cdef Table kernels

    def __init__(self, reads=(), inputs=None):
        self.kernels = Table()
        self.calls = inputs is not None
        inputs = inputs or ()
        # Reads of one parameter are neighbours.
        reads = sorted(reads)
        self.known = max(len(reads), len(inputs)) <= MOST_ARGUMENTS
        if self.known:
            self.num_reads, self.num_inputs = len(reads), len(inputs)
            for i, (parameter, rank, kind, dim) in enumerate(reads):
                self.reads[<int>i] = ConstantRead(parameter, rank, READ_KINDS[kind], dim)
            for i, parameter in enumerate(inputs):
                self.inputs[<int>i] = parameter

    cdef bint read(self, CallForm form, PyObject** values, int64_t* out, uint64_t* hash) except -1:
        """Reads the constants off the tensors of a call; False where one is no tensor, or not one
        that it is read off."""
        cdef DLTensor tensor
        cdef ConstantRead* read
        cdef int i, last = -1
        cdef PyObject* value
        for i in range(self.num_reads):
            read = &self.reads[i]
            if read.parameter != last:
                last = read.parameter
                value = form.value(last, values)
                if not PyObject_TypeCheck(<object>value, <PyTypeObject*>torch_tensor):
                    return False
                try:
                    torch_api.dltensor_from_py_object_no_sync(value, &tensor)
                except (BufferError, RuntimeError):  # found again, and told, on the way of Python
                    return False
            if read.kind == DTYPE:  # there is one object of each
                dtype = (<object>value).dtype
                out[i] = <int64_t><uintptr_t><PyObject*>dtype
            elif tensor.ndim != read.rank:
                return False
            elif read.kind == EXTENT:
                out[i] = tensor.shape[read.dim]
            elif tensor.strides is not NULL:
                out[i] = tensor.strides[read.dim]
            else:
                return False
            hash[0] = mixed(hash[0], <uint64_t>out[i])
        return True

    cdef FoundKernel find(self, int64_t* constants, state, uint64_t hash):
        cdef FoundKernel found = <FoundKernel>self.kernels.first(hash)
        while found is not None:
            if (
                found.hash == hash
                and found.state is state
                and memcmp(found.constants, constants, self.num_reads * sizeof(int64_t)) == 0
            ):
                return found
            found = <FoundKernel>found.next
        return None

    cdef tuple inputs_of(self, CallForm form, PyObject** values):
        """The arguments of a call that its kernel is called with."""
        cdef PyObject* made
        cdef PyObject* value
        cdef int i
        found = new_tuple(self.num_inputs)
        made = <PyObject*>found
        for i in range(self.num_inputs):
            value = form.value(self.inputs[i], values)
            Py_INCREF(<object>value)
            PyTuple_SetItem(made, i, value)
        return found


cdef bint gather(tuple args, dict kwargs, PyObject** values) except -1:
    """Borrows the values of a call, positional ones first; False where there are too many."""
    cdef Py_ssize_t place = 0, i, count = PyTuple_Size(<PyObject*>args)
    if count + PyDict_Size(kwargs) > MOST_ARGUMENTS:
        return False
    for i in range(count):
        values[i] = PyTuple_GetItem(<PyObject*>args, i)
    i = count
    while PyDict_Next(kwargs, &place, NULL, &values[i]):
        i += 1
        if i == MOST_ARGUMENTS:
            break
    return True


@cython.auto_pickle(False)
cdef class Dispatcher(Watched):
    """The base of functions whose calls choose a kernel by their arguments.

    A subclass has `_dispatch(args, kwargs)`, which takes any call, and lets `_keep` know what it
    has found; `_states` are those of the surroundings.
    """

    cdef list forms
    cdef readonly Snapshots _states

    def __cinit__(self):
        self.forms = []
        self._states = Snapshots()

    def __call__(self, *args, **kwargs):
        """Gives, or calls, the kernel for these arguments."""
        cdef PyObject* values[MOST_ARGUMENTS]
        cdef CallForm form
        cdef Version version = None
        cdef FoundKernel found = None
        cdef uint64_t hash
        cdef int64_t constants[MOST_ARGUMENTS]
        form = self._form(args, kwargs, values)
        if form is not None:
            choice = form.choice(values, form.hash_of_constants(values))
            if choice is not None:
                version = (<Choice>choice).versions.find()
        if version is not None:
            state = self._states.find()
            hash = <uint64_t><uintptr_t><PyObject*>state
            if state is not None and version.read(form, values, constants, &hash):
                found = version.find(constants, state, hash)
        if found is None:
            return self._dispatch(args, kwargs)
        if not version.calls:
            return found.kernel
        if form.whole:
            return call_object(found.kernel, args, NULL)
        return call_object(found.kernel, version.inputs_of(form, values), NULL)

    cdef CallForm _form(self, tuple args, dict kwargs, PyObject** values):
        """The form that a call has; the values of the call. None for one that is not known."""
        cdef PyObject* forms = <PyObject*>self.forms
        cdef PyObject* form
        cdef int num_args = <int>PyTuple_Size(<PyObject*>args)
        cdef Py_ssize_t i
        for i in range(PyList_Size(forms)):
            form = PyList_GetItem(forms, i)
            if (<CallForm>form).fits(num_args, kwargs) and gather(args, kwargs, values):
                return <CallForm>form
        return None

    def _keep(
        self, tuple args, dict kwargs, positions, tuple defaults, tuple arguments,
        Snapshots versions, Version version, state, kernel,
    ):
        """Has calls like this one find `kernel` as long as `version` is that of `versions` now and
        `state` that of the surroundings.

        `positions` and `defaults` of the parameters are as `CallForm` has them. `arguments` are the
        call's compile-time arguments, in the order in which they are passed, with lists and dicts
        of their own.
        """
        cdef PyObject* values[MOST_ARGUMENTS]
        cdef int64_t constants[MOST_ARGUMENTS]
        cdef CallForm form
        cdef Choice choice
        cdef FoundKernel found
        cdef uint64_t hash
        cdef int i
        if not version.known:
            return
        form = self._form(args, kwargs, values)
        if form is None:
            if max(len(positions), len(args) + len(kwargs)) > MOST_ARGUMENTS:
                return
            form = self._new_form(args, kwargs, positions, defaults, version)
            gather(args, kwargs, values)
        hash = form.hash_of_constants(values)
        choice = form.choice(values, hash)
        if choice is None:
            choice = Choice()
            choice.hash, choice.arguments = hash, arguments
            form.choices.add(choice)
        choice.versions = versions
        hash = <uint64_t><uintptr_t><PyObject*>state
        if not version.read(form, values, constants, &hash):
            return
        found = version.find(constants, state, hash)
        if found is None:
            found = FoundKernel()
            found.hash, found.state = hash, state
            memcpy(found.constants, constants, version.num_reads * sizeof(int64_t))
            version.kernels.add(found)
        found.kernel = kernel

    cdef CallForm _new_form(self, tuple args, dict kwargs, positions, tuple defaults, Version version):
        cdef CallForm form = CallForm()
        cdef int i
        form.choices = Table()
        form.num_args, form.num_values = len(args), len(args) + len(kwargs)
        form.names, form.defaults = tuple(kwargs), defaults
        for i, position in enumerate(positions):
            form.positions[i] = position
        run = [positions[version.inputs[i]] for i in range(version.num_inputs)]
        for i in range(form.num_values):
            if i not in run:
                form.constants[form.num_constants] = i
                form.num_constants += 1
        form.whole = not kwargs and run == list(range(form.num_args))
        if len(self.forms) >= MOST_FORMS:
            self.forms = []
        self.forms.append(form)
        return form
