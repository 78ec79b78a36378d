"""Shared buffers in the bytes of a pipeline's stages, where memory is short: results and waits."""

import pytest
import torch
import tvm_ffi
from tvm import tirx

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def places(kernel):
    """First byte and the one behind the last, of each buffer in dynamic shared memory. Of several
    with one name, the k-th has `#k` behind it."""
    spans = {}

    def allocation(node):
        if (offset := node.annotations.get("tl.shared_offset")) is not None:
            (extent,) = node.buffer.shape
            size = int(extent) * tvm_ffi.dtype(node.buffer.dtype).itemsize
            name = node.buffer.name
            same = sum(other.partition("#")[0] == name for other in spans)
            spans[f"{name}#{same}" if same else name] = (int(offset), int(offset) + size)

    (function,) = kernel.artifact.device_mod.functions.values()
    tvm_ffi.structural_walk(function.body, [(tirx.AllocBuffer, allocation)])
    return spans


def overlap(kernel, a, b):
    spans = places(kernel)
    return spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]


def reuse(kernel):
    """What the plan says of each buffer in bytes of others."""
    (function,) = kernel.artifact.device_mod.functions.values()
    notes = [str(note) for note in function.attrs.get("tl.notes") or []]
    return [note for note in notes if " is in bytes of " in note]


def compiled(program, arch):
    """For the GPU that there is, or the emulator; `explain()` needs neither."""
    return tilelang.compile(program, target=f"cuda -arch={arch}")


def close(found, wanted, tolerance=2e-3):
    assert float((found.cpu().double() - wanted.cpu().double()).norm()) < tolerance * float(
        wanted.cpu().double().norm()
    )


def tensors(*shapes):
    torch.manual_seed(0)
    return [(torch.randn(s) / 4).half().to(DEVICE) for s in shapes]


@T.macro
def multiply(A, B, C_local, row, iterations, stages):
    """Add the product of 64 rows of A and B to C_local, in a pipeline of tiles of 64 x 64."""
    A_shared = T.alloc_shared((64, 64), "float16")
    B_shared = T.alloc_shared((64, 64), "float16")
    for ko in T.Pipelined(iterations, num_stages=stages):
        T.copy(A[row, ko * 64], A_shared)
        T.copy(B[ko * 64, 0], B_shared)
        T.gemm(A_shared, B_shared, C_local)


def gemm(blocks, stages, iterations=6):
    """A tile of 64 x 64, staged behind the pipeline in 16 KB."""
    k = 64 * iterations

    @T.prim_func
    def main(
        A: T.Tensor((64, k), "float16"),
        B: T.Tensor((k, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            T.annotate_min_blocks_per_sm(blocks)
            C_shared = T.alloc_shared((64, 64), "float32")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            multiply(A, B, C_local, 0, iterations, stages)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C)

    return main


def persistent(blocks, stages, tiles=3, iterations=3, symbolic=False):
    """Tiles of 64 x 64 in turn, each staged in 16 KB behind its pipeline."""
    m, k = 64 * tiles, T.dynamic("k") if symbolic else 64 * iterations

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, 64), "float16"),
        C: T.Tensor((m, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as block:
            T.annotate_min_blocks_per_sm(blocks)
            C_shared = T.alloc_shared((64, 64), "float32")
            C_local = T.alloc_fragment((64, 64), "float32")
            for by, _ in T.Persistent([tiles, 1], 1, block):
                T.clear(C_local)
                multiply(A, B, C_local, by * 64, T.ceildiv(k, 64), stages)
                T.copy(C_local, C_shared)
                T.copy(C_shared, C[by * 64, 0])

    return main


def before(blocks, stages):
    """A tile that is used in front of the pipeline only."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float32"),
        A: T.Tensor((64, 384), "float16"),
        B: T.Tensor((384, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            T.annotate_min_blocks_per_sm(blocks)
            Q_shared = T.alloc_shared((64, 64), "float32")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, Q_shared)
            for i, j in T.Parallel(64, 64):
                C_local[i, j] = Q_shared[j, i]
            multiply(A, B, C_local, 0, 6, stages)
            T.copy(C_local, C)

    return main


def backward(blocks):
    """Two accumulators, staged one after the other: gradients of keys and values."""

    @T.prim_func
    def main(
        P: T.Tensor((256, 64), "float16"),
        S: T.Tensor((256, 64), "float16"),
        D: T.Tensor((256, 64), "float16"),
        dV: T.Tensor((64, 64), "float32"),
        dK: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            T.annotate_min_blocks_per_sm(blocks)
            P_shared = T.alloc_shared((64, 64), "float16")
            S_shared = T.alloc_shared((64, 64), "float16")
            D_shared = T.alloc_shared((64, 64), "float16")
            dV_shared = T.alloc_shared((64, 64), "float32")
            dK_shared = T.alloc_shared((64, 64), "float32")
            dv = T.alloc_fragment((64, 64), "float32")
            dk = T.alloc_fragment((64, 64), "float32")
            T.clear(dv)
            T.clear(dk)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(P[i * 64, 0], P_shared)
                T.copy(S[i * 64, 0], S_shared)
                T.copy(D[i * 64, 0], D_shared)
                T.gemm(P_shared, D_shared, dv, transpose_A=True)
                T.gemm(S_shared, D_shared, dk, transpose_A=True)
            T.copy(dv, dV_shared)
            T.copy(dV_shared, dV)
            T.copy(dk, dK_shared)
            T.copy(dK_shared, dK)

    return main


def chain(blocks):
    """Products in turn in a pipelined loop, each of what the one before has made: the compiler
    stages every conversion."""

    @T.macro
    def product(P, B_shared, C_local):
        T.copy(C_local, P)
        T.gemm(P, B_shared, C_local, clear_accum=True)

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            T.annotate_min_blocks_per_sm(blocks)
            B_shared = T.alloc_shared((64, 64), "float16")
            P = T.alloc_fragment((64, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(A, C_local)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(B[k * 64, 0], B_shared)
                product(P, B_shared, C_local)
                product(P, B_shared, C_local)
                product(P, B_shared, C_local)
                product(P, B_shared, C_local)
            T.copy(C_local, C)

    return main


ARCHS = pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])


@ARCHS
def test_a_tile_behind_a_pipeline(arch):
    a, b = tensors((64, 384), (384, 64))
    c = torch.zeros(64, 64, device=DEVICE)
    kernel = compiled(gemm(3, 4), arch)
    kernel(a, b, c)
    close(c, a.float() @ b.float())
    assert overlap(kernel, "C_shared", "A_shared")
    apart = compiled(gemm(1, 4), arch)
    # Without roles their lives are apart, and nothing is paid for the shared bytes.
    assert overlap(apart, "C_shared", "A_shared") == (arch == "sm_80")
    paid = ["C_shared is in bytes of A_shared, behind a barrier"]
    assert reuse(kernel) == (paid if arch == "sm_90a" else [])
    assert reuse(apart) == []


@ARCHS
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_tile_behind_the_pipeline_of_each_tile(arch, symbolic):
    a, b = tensors((192, 192), (192, 64))
    c = torch.zeros(192, 64, device=DEVICE)
    shape = (2, 5) if symbolic and arch == "sm_80" else (3, 4)
    kernel = compiled(persistent(*shape, symbolic=symbolic), arch)
    kernel(a, b, c)
    close(c, a.float() @ b.float())
    assert overlap(kernel, "C_shared", "A_shared")
    # A handshake between the roles has two mbarriers.
    handshakes = [last - first for name, (first, last) in places(kernel).items() if "reuse" in name]
    assert handshakes == ([16] if arch == "sm_90a" else [])
    (note,) = reuse(kernel)
    until = "; the role that fills these bytes waits for an mbarrier until they are free"
    barrier = "C_shared is in bytes of A_shared, behind a barrier"
    assert note == (barrier + until if arch == "sm_90a" else barrier)
    assert "reuse0" not in places(compiled(persistent(1, 4), arch))


@ARCHS
def test_a_tile_in_front_of_a_pipeline(arch):
    q = tensors((64, 64))[0].float()
    a, b = tensors((64, 384), (384, 64))
    c = torch.zeros(64, 64, device=DEVICE)
    kernel = compiled(before(3, 4), arch)
    kernel(q, a, b, c)
    close(c, q.T + a.float() @ b.float())
    assert overlap(kernel, "Q_shared", "A_shared") or overlap(kernel, "Q_shared", "B_shared")


@ARCHS
def test_gradients_behind_a_pipeline(arch):
    p, s, d = tensors((256, 64), (256, 64), (256, 64))
    dv, dk = (torch.zeros(64, 64, device=DEVICE) for _ in range(2))
    kernel = compiled(backward(4 if arch == "sm_90a" else 3), arch)
    kernel(p, s, d, dv, dk)
    close(dv, p.float().T @ d.float())
    close(dk, s.float().T @ d.float())
    assert "reuse0" not in places(kernel)
    assert overlap(kernel, "dK_shared", "P_shared") or overlap(kernel, "dV_shared", "P_shared")


def test_tiles_of_the_compiler_share():
    a, b = tensors((64, 64), (128, 64))
    c = torch.zeros(64, 64, device=DEVICE)
    kernel = compiled(chain(4), "sm_80")
    kernel(a, b, c)
    wanted = a.float()
    for k in range(2):
        for _ in range(4):
            wanted = wanted.half().float() @ b[k * 64 : k * 64 + 64].float()
    close(c, wanted, 1e-2)
    staged = [span for name, span in places(kernel).items() if "P_" in name]
    assert len(staged) == 4
    assert len(set(staged)) < 3
    apart = places(compiled(chain(1), "sm_80"))
    assert len({span for name, span in apart.items() if "P_" in name}) == 4


def three_tiles(count, rows=208):
    """In each turn of a loop a tile, another one that is stored, and a third: 240 KB in all."""

    @T.prim_func
    def main(
        A: T.Tensor((2, count, rows, 256), "float16"),
        Parts: T.Tensor((count, 64, 256), "float16"),
        Turned: T.Tensor((2, count, rows, 256), "float16"),
    ):
        with T.Kernel(1, threads=256):
            first, second = [T.alloc_shared((rows, 256), "float16") for _ in range(2)]
            part = T.alloc_shared((64, 256), "float16")
            for n in T.serial(count):
                for i, j in T.Parallel(rows, 256):
                    first[i, j] = A[0, n, i, j]
                for i, j in T.Parallel(rows, 256):
                    Turned[0, n, i, j] = first[rows - 1 - i, j]
                for i, j in T.Parallel(64, 256):
                    part[i, j] = A[0, n, i, j] * 2
                T.copy(part, Parts[n, :, :])
                for i, j in T.Parallel(rows, 256):
                    second[i, j] = A[1, n, i, j]
                for i, j in T.Parallel(rows, 256):
                    Turned[1, n, i, j] = second[rows - 1 - i, j]

    return main


def test_a_store_in_a_loop_is_not_awaited_where_there_is_room():
    kernel = compiled(three_tiles(3), "sm_90a")
    assert "tl::tma_store" in kernel.get_kernel_source()
    assert overlap(kernel, "first", "second")
    assert not overlap(kernel, "part", "first")
    assert not overlap(kernel, "part", "second")
    (a,) = tensors((2, 3, 208, 256))
    parts, turned = torch.empty_like(a[0, :, :64]), torch.empty_like(a)
    kernel(a, parts, turned)
    assert torch.equal(parts, a[0, :, :64] * 2)
    assert torch.equal(turned, a.flip(2))
