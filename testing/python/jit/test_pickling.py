"""Kernels, functions and programs in copy, pickle and torch.save: the object itself, made again, or
a TypeError; never the end of the process."""

import copy
import importlib.util
import io
import pickle
import sys

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import Fragment, Layout

MODULE = """
import tilelang
import tilelang.language as T


@tilelang.jit
def eager(A, factor: T.float32, block=64):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = factor * A[bx * block + i]
    return C


@tilelang.jit(out_idx=-1)
def lazy(n, factor=2):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                C[i] = factor * A[i]

    return main


class Model:
    def __init__(self, factor):
        self.factor = factor

    @tilelang.jit
    def scaled(self, A):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        C = T.empty((N,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                C[i] = self.factor * A[i]
        return C
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "pickled_kernels.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("pickled_kernels", path)
    made = importlib.util.module_from_spec(spec)
    sys.modules["pickled_kernels"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["pickled_kernels"]


def program():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                C[i] = A[i]

    return main


class Holder(torch.nn.Module):
    """A module that has a kernel."""

    def __init__(self):
        super().__init__()
        self.kernel = tilelang.compile(program())


def saved(value):
    """`value` through torch.save."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


THROUGH = [lambda v: pickle.loads(pickle.dumps(v)), saved]
COPIES = [copy.copy, copy.deepcopy]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_is_the_object_itself(module, copied):
    layout = Layout((4, 4), lambda i, j: i * 4 + j)
    fragment = Fragment((4, 4), forward_fn=lambda i, j: (i, j))
    main = program()
    variable = main.params[0]
    for value in (
        tilelang.compile(main),
        module.eager,
        layout,
        fragment,
        main,
        variable,
        main.body,
    ):
        assert copied(value) is value
        assert copied([value])[0] is value


def test_a_copied_module_of_programs_is_apart():
    import tvm

    mod = tvm.IRModule({"main": program()})
    other = copy.deepcopy(mod)
    other["more"] = program()
    assert len(mod.functions) == 1


@pytest.mark.parametrize("through", THROUGH)
def test_kernels_of_named_functions_are_made_again(module, tensors_on_device, through):
    a = torch.arange(64.0)
    kernels = [
        (module.eager.compile(a, 3.0), (a, 3.0)),
        (module.eager.compile(N=64, block=32), (a, 3.0)),
        (module.lazy(64, factor=3), (a,)),
        (module.Model(3.0).scaled.compile(a), (a,)),
    ]
    for kernel, given in kernels:
        again = through(kernel)
        assert again is not None
        assert torch.equal(again(*given), 3 * a)
    assert through(module.eager) is module.eager


@pytest.mark.parametrize("through", THROUGH)
def test_what_cannot_be_made_again_is_refused(module, through):
    @tilelang.jit(out_idx=-1)
    def local(n):
        return program()

    main = program()
    named = "define it at the top of a module"
    made = "Pickle the arguments"
    for value, wanted in [
        (tilelang.compile(main), "cannot pickle a kernel .* Pickle the arguments"),
        (local(64), named),
        (local, named),
        (Layout((4,), lambda i: i), f"cannot pickle Layout: .*{made}"),
        (Fragment((4,), forward_fn=lambda i: (i, 0)), f"cannot pickle Fragment: .*{made}"),
        (main, f"cannot pickle PrimFunc: .*{made}"),
        (main.params[0], made),
        (main.params[0].ty, made),
        (main.body, made),
    ]:
        with pytest.raises(TypeError, match=wanted):
            through(value)
        with pytest.raises(TypeError, match=wanted):
            through({"value": [value]})
    holder = Holder()
    with pytest.raises(TypeError, match="cannot pickle a kernel"):
        through(holder)
    assert copy.deepcopy(holder).kernel is holder.kernel
