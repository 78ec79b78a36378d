"""Which variant of a program takes a call."""


# A product of variables, or its remainder by `modulus` if that is not 0, in [least, most].
ctypedef struct Guard:
    int count
    int variables[MAX_FACTORS]
    int64_t modulus
    int64_t least
    int64_t most


cdef void encode_guard(Guard* out, guard, dict variables):
    out.count = len(guard.variables)
    for k, name in enumerate(guard.variables):
        out.variables[<int>k] = variables[name]
    out.modulus = guard.modulus
    out.least = INT64_MIN if guard.least is None else guard.least
    out.most = INT64_MAX if guard.most is None else guard.most


cdef bint all_hold(const Guard* guards, int count, const int64_t* variables) noexcept nogil:
    """Whether the guards hold of these variables; a product that leaves 64 bits is in no bounds."""
    cdef const Guard* guard
    cdef int64_t value
    cdef int i, k
    for i in range(count):
        guard = &guards[i]
        value = variables[guard.variables[0]]
        for k in range(1, guard.count):
            if mul_overflows(value, variables[guard.variables[k]], &value):
                return False
        if guard.modulus:
            value -= floordiv(value, guard.modulus) * guard.modulus
        if not guard.least <= value <= guard.most:
            return False
    return True


cdef class Variants:
    """The conditions of a plan's own variant and of the `others`; their launchers.

    `make(number)` gives the launcher of one of the others; it is called when a call is the first to
    need it.
    """

    cdef object plan, make
    cdef list launchers
    cdef Guard* guards
    cdef int* ends  # of the guards of each, the plan's own first
    cdef bint* any_address
    cdef int count

    def __cinit__(self, plan, dict variables, make):
        cdef int i = 0, k
        conditions = [plan.guards, *(other.guards for other in plan.others)]
        self.plan = plan
        self.make = make
        self.launchers = [None] * len(plan.others)
        self.count = len(plan.others)
        self.guards = <Guard*>allocate(sum(map(len, conditions)), sizeof(Guard))
        self.ends = <int*>allocate(len(conditions), sizeof(int))
        self.any_address = <bint*>allocate(len(conditions), sizeof(bint))
        for k, guards in enumerate(conditions):
            for guard in guards:
                encode_guard(&self.guards[i], guard, variables)
                i += 1
            self.ends[k] = i
            self.any_address[k] = k > 0 and plan.others[k - 1].any_address

    def __dealloc__(self):
        free(self.guards)
        free(self.ends)
        free(self.any_address)

    cdef object other(self, bint misaligned, const int64_t* variables):
        """The launcher of the first of the others that takes the call; None where none does, or
        nobody makes it."""
        cdef int i
        if self.make is None:
            return None
        for i in range(self.count):
            if misaligned and not self.any_address[i + 1]:
                continue
            if all_hold(&self.guards[self.ends[i]], self.ends[i + 1] - self.ends[i], variables):
                if self.launchers[i] is None:
                    self.launchers[i] = self.make(i)
                return self.launchers[i]
        return None
