import tilelang
import tilelang.language as T
from tilelang.testing.perf.costs import NAMES, WEIGHED, kernel_costs


@tilelang.jit(out_idx=[-1], target="cuda -arch=sm_90a", execution_backend="emulate")
def powers(steps):
    @T.prim_func
    def main(A: T.Tensor((128,), T.float32), B: T.Tensor((128,), T.float32)):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((128,), T.float32)
            shared = T.alloc_shared((128,), T.float32)
            T.copy(A, shared)
            T.copy(shared, x)
            for _ in T.serial(steps):
                for i in T.Parallel(128):
                    x[i] = x[i] * x[i] + 1
            T.copy(x, B)

    return main


def test_a_loop_costs_its_iterations():
    few, many = kernel_costs(powers(1000)), kernel_costs(powers(3000))
    assert many["executed"] - few["executed"] == 2000
    assert many["statements"] == few["statements"]
    assert many["source"] == few["source"]
    assert few["registers"] > 0
    assert few["spills"] == 0
    assert few["shared"] >= 512
    assert few["cubin"] > 1000
    assert few.get("instructions", 20) > 10
    assert set(few) <= set(NAMES)
    assert set(WEIGHED) <= set(NAMES)
