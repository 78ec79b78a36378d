"""The kernel that scale.cc calls: each row of A times a factor."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def scale(columns=64):
    """A program for rows of `columns` numbers."""
    rows = T.dynamic("rows")

    @T.prim_func
    def main(
        A: T.Tensor((rows, columns), "float32"),
        factor: T.float32,
        C: T.Tensor((rows, columns), "float32"),
    ):
        with T.Kernel(rows, threads=columns) as row:
            for j in T.Parallel(columns):
                C[row, j] = A[row, j] * factor

    return main


if __name__ == "__main__":
    scale().export("scale.tlk", archs=["sm_90a"])
