"""The process's environment as C has it, which `os.environ` writes through to."""

cdef extern from "<stdlib.h>" nogil:
    char* getenv(const char* name)

cdef extern from "<string.h>" nogil:
    int strcmp(const char* a, const char* b)


cdef class Environment:
    """The values of some environment variables at one time: ``Environment([b"HOME"])``.

    `unchanged` asks whether they are the same now, without an object of Python; reading a variable
    that is not set from `os.environ` takes a microsecond.
    """

    cdef tuple names
    cdef tuple values

    def __init__(self, names):
        cdef const char* value
        values = []
        self.names = tuple(names)
        for name in self.names:
            value = getenv(<const char*>(<bytes>name))
            values.append(None if value is NULL else <bytes>value)
        self.values = tuple(values)

    def unchanged(self):
        """Whether all variables are what they were."""
        cdef const char* value
        for name, before in zip(self.names, self.values):
            value = getenv(<const char*>(<bytes>name))
            if (value is NULL) != (before is None):
                return False
            if value is not NULL and strcmp(value, <const char*>(<bytes>before)) != 0:
                return False
        return True
