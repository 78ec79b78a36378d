"""RenewThreadNumber: addresses of a role with few registers do not live through its loop."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")


@pytest.mark.parametrize(
    ("registers", "more", "spilled"), [(88, False, False), (168, True, False), (168, True, True)]
)
@pytest.mark.parametrize("multiplies", [False, True])
def test_roles_that_give_registers_back(registers, more, spilled, multiplies):
    """All roles where ptxas has spilled (tilelang/jit/second_choice.py)."""

    @T.prim_func
    def main(A: T.Tensor((3, 64, 64), T.float16), C: T.Tensor((3, 64, 64), T.float32)):
        with T.Kernel(1, threads=512):
            a = T.alloc_shared((64, 64), T.float16)
            c = T.alloc_fragment((64, 64), T.float32)
            if more:  # what group 2 takes
                with T.ws(0, 1):
                    T.set_max_nreg(96, False)
            with T.ws(2):
                T.set_max_nreg(registers, more)
                for n in T.serial(3):
                    T.copy(A[n, :, :], a)
                    if multiplies:
                        T.gemm(a, a, c, clear_accum=True)
                    else:
                        T.copy(a, c)
                    T.copy(c, C[n, :, :])

    configs = {"tl.second_choice.addresses_anew": spilled}
    kernel = tilelang.compile(main, target=HOPPER, pass_configs=configs)
    source = kernel.get_kernel_source()
    assert ("tl::thread_again(tx, 512)" in source) is (multiplies and (spilled or not more))
    a, c = torch.randn(3, 64, 64).half(), torch.zeros(3, 64, 64)
    kernel(a, c)
    wanted = a.float() @ a.float() if multiplies else a.float()
    torch.testing.assert_close(c, wanted, rtol=1e-4, atol=1e-2)
