"""The source of a kernel depends on the kernel alone: not on hash seeds, nor on what was compiled
before."""

import json
import os
import subprocess
import sys

PROGRAMS = """
import json, pathlib, random, sys
import tilelang
import tilelang.language as T
sys.path += [sys.argv[2], *map(str, pathlib.Path(sys.argv[2]).iterdir())]
from flash_attention import flash_attention
from quickstart import matmul
from rms_norm import rms_norm
from softmax import softmax


def reduction(m, n, threads):
    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float16"), R: T.Tensor((m,), "float32"), C: T.Tensor((n,), "float16")
    ):
        with T.Kernel(1, threads=threads):
            S, F = T.alloc_shared((m, n), "float16"), T.alloc_fragment((m, n), "float16")
            r, c = T.alloc_fragment((m,), "float32"), T.alloc_fragment((n,), "float16")
            T.copy(A, S)
            T.cumsum(S, dim=1)
            T.copy(S, F)
            T.reduce_sum(F, r, dim=1)
            T.reduce_max(F, c, dim=0)
            T.copy(r, R)
            for j in T.Parallel(n):
                T.atomic_add(C[j], c[j])
    return main


def dynamic(threads):
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=threads) as (bx, by):
            S, V = T.alloc_shared((32, 32), "float32"), T.alloc_shared((32, 32), "float32")
            T.copy(A[by * 32, bx * 32], S)
            T.transpose(S, V)
            T.copy(V, B[bx * 32, by * 32])
    return main


programs = {
    "gemm": lambda: matmul.get_tir(1000, 1024, 512, 128, 128, 32),
    "gemm 64": lambda: matmul.get_tir(130, 60, 33, 64, 32, 16),
    "attention": lambda: flash_attention.get_tir(1, 2, 200, 64, True),
    "attention 256": lambda: flash_attention.get_tir(2, 2, 256, 64, False, threads=256),
    "softmax": lambda: softmax.get_tir(100, 1024, T.bfloat16, block_M=1, threads=256),
    "softmax odd": lambda: softmax.get_tir(33, 129, T.float32),
    "rms_norm": lambda: rms_norm.get_tir(33, 1024),
    "reduction": lambda: reduction(33, 65, 96),
    "reduction 2": lambda: reduction(16, 128, 128),
    "reduction 3": lambda: reduction(7, 100, 64),
    "dynamic": lambda: dynamic(128),
    "dynamic 2": lambda: dynamic(64),
}
order = list(programs)
random.Random(int(sys.argv[1])).shuffle(order)
sources = {k: tilelang.lower(programs[k](), target="cuda -arch=sm_80").kernel_source for k in order}
print(json.dumps(sources, sort_keys=True))
"""


def test_sources_are_equal_in_every_process(pytestconfig, tmp_path):
    script = tmp_path / "programs.py"
    script.write_text(PROGRAMS)
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(seed), str(pytestconfig.rootpath / "examples")],
            env=dict(os.environ, PYTHONHASHSEED=str(seed)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (0, 77)
    ]
    first, other = (json.loads(process.communicate(timeout=120)[0]) for process in running)
    assert len(first) == 12
    for name, source in first.items():
        assert other[name] == source, name
