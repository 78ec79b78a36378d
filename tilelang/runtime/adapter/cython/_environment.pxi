"""The process's environment as C has it, which `os.environ` writes through to."""

cdef extern from "<stdlib.h>" nogil:
    char* getenv(const char* name)

cdef extern from "<string.h>" nogil:
    int strcmp(const char* a, const char* b)

cdef enum:
    MAX_VARIABLES = 8


cdef class Environment:
    """The values of up to 8 environment variables at one time: ``Environment([b"HOME"])``.

    `unchanged` asks whether they are the same now, without an object of Python; reading a variable
    that is not set from `os.environ` takes a microsecond.
    """

    cdef list kept  # what the pointers point into
    cdef int count
    cdef const char* names[MAX_VARIABLES]
    cdef const char* values[MAX_VARIABLES]

    def __init__(self, names):
        cdef const char* value
        self.kept = []
        if len(names) > MAX_VARIABLES:
            raise ValueError(f"expected up to {MAX_VARIABLES} variables, got {len(names)}")
        for name in names:
            value = getenv(<const char*>(<bytes>name))
            copied = None if value is NULL else <bytes>value
            self.kept.append((name, copied))
            self.names[self.count] = <const char*>(<bytes>name)
            self.values[self.count] = NULL
            if copied is not None:
                self.values[self.count] = <const char*>(<bytes>copied)
            self.count += 1

    def unchanged(self):
        """Whether all variables are what they were."""
        return self.holds()

    cdef bint holds(self) noexcept:
        cdef const char* value
        cdef int i
        for i in range(self.count):
            value = getenv(self.names[i])
            if (value is NULL) != (self.values[i] is NULL):
                return False
            if value is not NULL and strcmp(value, self.values[i]) != 0:
                return False
        return True
