"""What Python's objects held at one time, and whether they hold it still.

A check compares in C: it makes no object, and runs nothing of Python but the functions that `call`
was given.
"""

from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.object cimport Py_EQ, PyObject_Hash, PyObject_RichCompareBool

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(PyObject* mapping, PyObject* key) except? NULL
    int PyObject_GenericSetAttr(object value, object name, object attribute) except -1
    object call_object "PyObject_Call"(object function, object args, PyObject* kwargs)
    PyObject* PyList_GetItem(PyObject* values, Py_ssize_t index) except NULL
    Py_ssize_t PyList_Size(PyObject* values) except -1
    PyObject* PyTuple_GetItem(PyObject* values, Py_ssize_t index) except NULL
    Py_ssize_t PyTuple_Size(PyObject* values) except -1

cdef enum:
    MOST_SNAPSHOTS = 4  # that are kept of one thing
    MOST_DEPTH = 8  # of lists in lists

cdef enum PlaceKind:
    ITEM  # of a dict
    OPTION  # an item of a dict that is compared by `same`
    GOT  # what another mapping's `get` returns
    CONTENT  # of a cell
    ATTRIBUTE
    ELEMENTS  # of a list
    LENGTH  # of a dict
    CALL  # what a call returns, compared by `same`
    OBJECT  # that a function of TVM returns
    ATTRIBUTES  # of a Watched

# `held` is what `owner` has at `name`. The snapshot owns all three.
ctypedef struct HeldPlace:
    int kind
    PyObject* owner
    PyObject* name
    PyObject* held

# tvm/ffi/c_api.h, whose ABI is stable: TVMFFIAny, TVMFFIFunctionCall, TVMFFIObjectDecRef.
ctypedef struct TvmValue:
    int32_t type
    uint32_t padding
    int64_t value  # of an object its address

cdef enum:
    TVM_NONE = 0
    TVM_BOOL = 2
    TVM_OBJECT = 64  # and above

ctypedef int (*TvmCall)(
    void* function, TvmValue* args, int32_t count, TvmValue* result) noexcept
ctypedef int (*TvmRelease)(void* object) noexcept

ABSENT = object()
cdef object absent = ABSENT  # as a C global: no look-up in the module
cdef str cell_contents = "cell_contents"


cdef bint same(PyObject* kept, PyObject* value, int depth) except -1:
    """Whether a trace cannot tell two compile-time arguments apart: one object, or equal numbers,
    texts, lists, tuples and dicts of the same types. `kept` has lists and dicts of its own, which
    nobody changes. Lists at a `depth` of `MOST_DEPTH` count as different: one may be in itself."""
    cdef double a, b
    if kept == value:
        return True
    kind = type(<object>value)
    if type(<object>kept) is not kind:
        return False
    if kind is int or kind is bool or PyObject_TypeCheck(<object>kept, <PyTypeObject*>str):
        return PyObject_RichCompareBool(<object>kept, <object>value, Py_EQ)
    if kind is float:
        a, b = <object>kept, <object>value
        return memcmp(&a, &b, sizeof(double)) == 0  # 0.0 equals -0.0, and NaN not itself
    if kind is tuple or kind is list or kind is dict:
        return depth < MOST_DEPTH and same_elements(kept, value, depth + 1)
    return False


cdef bint same_elements(PyObject* kept, PyObject* value, int depth) except -1:
    """The same of two tuples, lists or dicts, whose elements are at `depth`."""
    cdef Py_ssize_t i, count
    cdef Py_ssize_t place = 0, kept_place = 0
    cdef PyObject* key
    cdef PyObject* element
    cdef PyObject* kept_key
    cdef PyObject* kept_element
    if type(<object>kept) is tuple:
        count = PyTuple_Size(kept)
        if PyTuple_Size(value) != count:
            return False
        for i in range(count):
            if not same(PyTuple_GetItem(kept, i), PyTuple_GetItem(value, i), depth):
                return False
        return True
    if type(<object>kept) is list:
        count = PyList_Size(kept)
        if PyList_Size(value) != count:
            return False
        for i in range(count):
            if not same(PyList_GetItem(kept, i), PyList_GetItem(value, i), depth):
                return False
        return True
    if PyDict_Size(<object>kept) != PyDict_Size(<object>value):
        return False
    while PyDict_Next(<object>kept, &kept_place, &kept_key, &kept_element):
        if not PyDict_Next(<object>value, &place, &key, &element):
            return False
        if not same(kept_key, key, depth) or not same(kept_element, element, depth):
            return False
    return True


@cython.auto_pickle(False)
cdef class Watched:
    """The base of objects whose attributes are compared by one number: how often any was set."""

    cdef int64_t times_set

    def __setattr__(self, name, value):
        self.times_set += 1
        PyObject_GenericSetAttr(self, name, value)


@cython.auto_pickle(False)
cdef class TvmFunction:
    """A function of TVM, ``function(True)``, that gives an object or None, called without Python.

    `call` and `release` are the addresses of TVMFFIFunctionCall and TVMFFIObjectDecRef.
    """

    cdef object function  # keeps the handle
    cdef void* handle
    cdef TvmCall call_function
    cdef TvmRelease release

    def __init__(self, function, call, release):
        self.function = function
        self.handle = <void*><uintptr_t>function.__chandle__()
        self.call_function = <TvmCall><uintptr_t>call
        self.release = <TvmRelease><uintptr_t>release

    cdef int64_t address(self) noexcept:
        """The address of the object that it gives, 0 for none, -1 where it fails."""
        cdef TvmValue argument, result
        argument = TvmValue(TVM_BOOL, 0, 1)
        result = TvmValue(TVM_NONE, 0, 0)
        if self.call_function(self.handle, &argument, 1, &result):
            return -1
        if result.type < TVM_OBJECT:
            return 0
        self.release(<void*><uintptr_t>result.value)
        return result.value


@cython.auto_pickle(False)
cdef class Snapshot:
    """Places and what they held when they were added: ``snapshot.unchanged()``.

    Example: ``snapshot.item(vars(module), "BLOCK", module.BLOCK)``
    """

    cdef list kept  # what the pointers point to
    cdef HeldPlace* places
    cdef int count, room

    def __cinit__(self):
        self.kept = []

    def __dealloc__(self):
        free(self.places)

    def __len__(self):
        return self.count

    cdef int add(self, int kind, owner, name, held) except -1:
        cdef HeldPlace* places
        if self.count == self.room:
            self.room = 2 * self.room + 8
            places = <HeldPlace*>allocate(self.room, sizeof(HeldPlace))
            if self.count:
                memcpy(places, self.places, self.count * sizeof(HeldPlace))
            free(self.places)
            self.places = places
        self.kept.append((owner, name, held))
        self.places[self.count] = HeldPlace(
            kind, <PyObject*>owner, <PyObject*>name, <PyObject*>held)
        self.count += 1
        return 0

    def item(self, mapping, name, value):
        """What a mapping has at `name`: this object; `ABSENT` for nothing."""
        if type(mapping) is dict:
            self.add(ITEM, mapping, name, value)
        else:
            self.add(GOT, mapping.get, name, value)

    def option(self, dict mapping, name, value):
        """The same, where lists and dicts count by their elements; `value` has its own of them."""
        self.add(OPTION, mapping, name, value)

    def cell(self, cell, content):
        """The variable of an enclosing function, `ABSENT` before it is assigned."""
        self.add(CONTENT, cell, None, content)

    def attribute(self, value, name, found):
        """An attribute as `getattr` gives it, or `ABSENT`."""
        self.add(ATTRIBUTE, value, name, found)

    def elements(self, values, tuple elements):
        """The elements of a list: these objects."""
        self.add(ELEMENTS, values, None, elements)

    def length(self, mapping):
        """The number of a dict's items."""
        self.add(LENGTH, mapping, None, len(mapping))

    def call(self, function, tuple args, result):
        """What a function returns."""
        self.add(CALL, function, args, result)

    def tvm_object(self, TvmFunction function, found):
        """The object of TVM that a function gives, or None."""
        self.add(OBJECT, function, 0 if found is None else found.__chandle__(), found)

    def attributes(self, Watched value):
        """All attributes of an object: the objects that they are now."""
        self.add(ATTRIBUTES, value, value.times_set, None)

    def unchanged(self):
        """Whether all places hold what they held; what was set again to an equal object may count
        as changed."""
        return self.holds()

    cdef bint holds(self) except -1:
        cdef int i
        for i in range(self.count):
            if not place_holds(&self.places[i]):
                return False
        return True


cdef bint place_holds(const HeldPlace* place) except -1:
    cdef PyObject* found
    cdef Py_ssize_t i, count
    if place.kind == ITEM:
        found = PyDict_GetItemWithError(place.owner, place.name)
        return (<PyObject*>absent if found is NULL else found) == place.held
    if place.kind == ATTRIBUTES:
        return (<Watched><object>place.owner).times_set == <int64_t><object>place.name
    if place.kind == OPTION:
        found = PyDict_GetItemWithError(place.owner, place.name)
        return found is not NULL and same(place.held, found, 0)
    if place.kind == GOT:
        return (<object>place.owner)(<object>place.name, absent) is <object>place.held
    if place.kind == CONTENT:
        try:
            return getattr(<object>place.owner, cell_contents) is <object>place.held
        except ValueError:
            return absent is <object>place.held
    if place.kind == ATTRIBUTE:
        return getattr(<object>place.owner, <object>place.name, absent) is <object>place.held
    if place.kind == ELEMENTS:
        count = PyTuple_Size(place.held)
        if PyList_Size(place.owner) != count:
            return False
        for i in range(count):
            if PyList_GetItem(place.owner, i) != PyTuple_GetItem(place.held, i):
                return False
        return True
    if place.kind == LENGTH:
        return PyDict_Size(<object>place.owner) == <object>place.held
    if place.kind == OBJECT:
        return (<TvmFunction><object>place.owner).address() == <int64_t><object>place.name
    result = call_object(<object>place.owner, <object>place.name, NULL)
    return same(place.held, <PyObject*>result, 0)


@cython.auto_pickle(False)
cdef class Snapshots:
    """Values, each with the snapshot that it goes with. Up to four are kept, the last one found
    first."""

    cdef list pairs

    def __cinit__(self):
        self.pairs = []

    def current(self):
        """The value of a snapshot that is unchanged; None where none is."""
        return self.find()

    def keep(self, Snapshot snapshot, value):
        """Adds a value, which is that of now."""
        self.pairs = [(snapshot, value), *self.pairs[: MOST_SNAPSHOTS - 1]]

    cdef object find(self):
        cdef list pairs = self.pairs  # another thread puts others in its place
        cdef PyObject* pair
        cdef Py_ssize_t i
        for i in range(PyList_Size(<PyObject*>pairs)):
            pair = PyList_GetItem(<PyObject*>pairs, i)
            if (<Snapshot><object>PyTuple_GetItem(pair, 0)).holds():
                value = <object>PyTuple_GetItem(pair, 1)
                if i:
                    self.pairs = [pairs[i], *pairs[:i], *pairs[i + 1 :]]
                return value
        return None
