"""What is refused of descriptors of wgmma and of products by them."""

import pytest

import tilelang

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def build(func, target=HOPPER):
    return tilelang.compile(func, target=target, execution_backend="emulate")


HEAD = """\
S = T.alloc_shared((64, 64), "float16")
c = T.alloc_local((32,), "float32")
d = T.alloc_wgmma_desc()
"""


def issued(
    *, prefix="m64n64k16", types=("fp16", "fp16", "fp32"), c="c", at="0", a="d", dtype="float32"
):
    words = ", ".join(map(repr, types))
    return f"T.ptx_wgmma_ss({dtype!r}, {prefix!r}, 1, 1, {words}, {a}, 0, d, 0, {c}, {at}, 0)"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.alloc_descriptor('mma')", ValueError, "is 'mma', wanted one of wgmma, tcgen05_smem, "),
        ("T.alloc_wgmma_desc('int8')", ValueError, "dtype of T.alloc_descriptor is int8, wanted u"),
        ("T.initialize_wgmma_descriptor(S, S)", ValueError, "found S in memory 'shared.dyn', want"),
        ("T.initialize_wgmma_descriptor(d, A)", ValueError, "found A in memory 'global', wanted '"),
        ("T.initialize_wgmma_descriptor(d, 3)", TypeError, "found 3 of type int, wanted an elemen"),
        ("T.initialize_wgmma_descriptor(d, S, 4)", ValueError, "layout_type_ of .* is 4, wanted o"),
        ("T.initialize_wgmma_descriptor(d, S, 1, n)", ValueError, "lbo of .* is n, wanted a const"),
        ("T.increase_descriptor_offset(d, 8)", ValueError, "off of .* is 8 bytes, wanted a multip"),
        ("T.increase_descriptor_offset(d, 0.5)", TypeError, "off of .* is 0.5 of type float, want"),
        ("T.warpgroup_wait(8)", ValueError, "n of T.warpgroup_wait is 8, wanted a constant from 0"),
        ("T.warpgroup_fence_operand(S)", ValueError, "found S in memory 'shared.dyn'.*T.wait_wgmm"),
        ("T.warpgroup_fence_operand(c, 8, 32)", IndexError, "touches elements 8 to 39 of c, which"),
        ("T.warpgroup_fence_operand(c, num_regs=0)", ValueError, "num_regs of .* is 0, wanted a p"),
        ("T.warpgroup_fence_operand(c, dtype='int8')", ValueError, "is int8, wanted float32, that"),
        (issued(prefix="m64n60k16"), ValueError, "found 'm64n60k16' of float16 and float16 into f"),
        (issued(types=("fp16", "bf16", "fp32")), ValueError, "of float16 and bfloat16 into float3"),
        (issued(types=("e4m3", "e5m2", "fp32"), prefix="m64n64k32"), ValueError, "A and B of one "),
        (issued(prefix="m64n128k16"), IndexError, "touches elements 0 to 63 of c, which has 32"),
        (issued(c="S"), ValueError, "found S in memory 'shared.dyn', wanted 'local'; allocate it "),
        (issued(a="S"), ValueError, "found S in memory 'shared.dyn', wanted 'local.descriptor.wgm"),
        (issued(types=("fp16", "fp16", "fp16"), dtype="float16"), TypeError, "c of float32, wante"),
        (issued(dtype="float16"), ValueError, "dtype of .* is float16, wanted float32, that of C"),
    ],
)  # fmt: skip
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(HEAD + statement)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (issued(), r"found a product with the descriptor d, which describes nothing"),
        (
            "T.initialize_wgmma_descriptor(d, S)\nd[0] = 3",
            "found a use of the descriptor d that may",
        ),
        (
            "T.call_extern('void', 'f', d.data)",
            "found a use of the descriptor d that may change it",
        ),
        (
            "T.annotate_layout({S: tilelang.layout.make_swizzled_layout(S)})\n"
            "T.initialize_wgmma_descriptor(d, S, 2, 1, 32)\n" + issued(),
            "of a swizzle of 64 bytes for S, whose layout has one of 128 bytes, wanted the same",
        ),
    ],
)
def test_what_nobody_could_order_is_refused(trace, text, message):
    func = trace(HEAD + text, tilelang=tilelang)
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        build(func)


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("sm_80", "for sm_80, wanted sm_90a"),
        ("sm_100a", "for sm_100a, wanted sm_90a"),
    ],
)
def test_other_chips_have_no_such_product(trace, arch, message):
    func = trace(HEAD + "T.initialize_wgmma_descriptor(d, S, 1, 1, 64)\n" + issued())
    with pytest.raises(ValueError, match=message):
        build(func, {"kind": "cuda", "arch": arch})
