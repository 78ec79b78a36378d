"""The call of a kernel object: from Python's arguments to its launcher without a Python frame."""


@cython.auto_pickle(False)
cdef class Callee:
    """The base of what is called with tensors.

    A subclass has `launch_plan`, and `adapter`, which builds the launcher; it is kept in `_adapter`.
    """

    cdef public object _adapter

    def __call__(self, *args, **kwargs):
        """Runs the kernel. Inputs may be given by their names.

        Raises `ValueError` where an argument's count, rank, dtype, shape, strides, device or
        alignment is wrong, `TypeError` where it is no tensor or no number, or a name is unknown;
        nothing has run then. `RuntimeError` where the launch fails.
        """
        launcher = self._adapter
        if kwargs:
            args = positional(self.launch_plan, args, kwargs)
        if launcher is None:
            launcher = self.adapter
        if type(launcher) is Launcher:
            return (<Launcher>launcher).call(args)
        return launcher(*args)
