"""The headers under clang for AMD: each alone, every function, every instruction."""

import re
from pathlib import Path

import pytest

from tilelang._paths import device_root
from tilelang.hip.compile import CodeObject, compile_code_object
from tilelang.hip.toolchain import find_math_library

ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100"]
SOURCES = Path(__file__).parents[1]
HEADERS = [p.name for name in ("hip", "gpu") for p in (device_root() / name).rglob("*.h")]
KERNEL = re.compile(r"__global__ void\s+(?:__launch_bounds__\(\d+\)\s+)?(\w+)\(")
ON_ALL = """
  product<32, 8, half_t, float>(x, out);
  product<16, 16, half_t, float>(x, out);
  product<32, 8, bfloat16_t, float>(x, out);
  product<16, 16, bfloat16_t, float>(x, out);
  product<32, 2, float, float>(x, out);
  product<16, 4, float, float>(x, out);
  product<16, 4, double, double>(x, out);
"""
ON_CDNA3 = """
  product<32, 16, int8_t, int>(x, out);
  product<16, 32, int8_t, int>(x, out);
  product<32, 16, FP8_E4, float>(x, out);
  product<16, 32, FP8_E4, float>(x, out);
  product<32, 16, FP8_E5, float>(x, out);
  product<16, 32, FP8_E5, float>(x, out);
"""
FNUZ = ON_CDNA3.replace("FP8_E4", "fp8_e4_fnuz_t").replace("FP8_E5", "fp8_e5_fnuz_t")
OCP = ON_CDNA3.replace("FP8_E4", "fp8_e4_t").replace("FP8_E5", "fp8_e5_t")
PRODUCTS = {
    "gfx90a": ON_ALL + "product<32, 8, int8_t, int>(x, out); product<16, 16, int8_t, int>(x, out);",
    "gfx942": ON_ALL
    + FNUZ
    + "product<32, 4, tfloat32_t, float>(x, out); product<16, 8, tfloat32_t, float>(x, out);",
    "gfx950": ON_ALL
    + OCP
    + """
  product<32, 16, half_t, float>(x, out);
  product<16, 32, half_t, float>(x, out);
  product<32, 16, bfloat16_t, float>(x, out);
  product<16, 32, bfloat16_t, float>(x, out);
  product<32, 32, int8_t, int>(x, out);
  product<16, 64, int8_t, int>(x, out);
""",
}
SCALED = """
template <int M, int K, typename A, typename B>
__device__ void product(const unsigned char* x, float* out) {
  alignas(16) float c[M * M / 64];
  for (int i = 0; i < M * M / 64; ++i) c[i] = out[i * 64 + threadIdx.x];
  alignas(16) tl::mma_memory<A> a[32];
  alignas(16) tl::mma_memory<B> b[32];
  for (int i = 0; i < 32; ++i) a[i] = ((const tl::mma_memory<A>*)x)[i * 64 + threadIdx.x];
  for (int i = 0; i < 32; ++i) b[i] = ((const tl::mma_memory<B>*)x)[i * 64 + threadIdx.x];
  tl::mfma_scale<M, M, K, A, B>(c, a, b, fp8_e8_t(1.0f), fp8_e8_t(0.5f));
  for (int i = 0; i < M * M / 64; ++i) out[i * 64 + threadIdx.x] = c[i];
}
extern "C" __global__ void __launch_bounds__(64) scaled_kernel(const unsigned char* x, float* f) {
  product<16, 128, fp8_e4_t, fp8_e5_t>(x, f);
  product<32, 64, fp4_e2_t, fp8_e4_t>(x, f);
  product<16, 128, fp6_e2_t, fp6_e3_t>(x, f);
  product<32, 64, fp6_e3_t, fp4_e2_t>(x, f);
}
"""


def compiled(name: str, arch: str, headers: list[str], text: str | None = None) -> CodeObject:
    """A file of the folder above, or `text`, which has one kernel."""
    source = (SOURCES / f"{name}.cu").read_text() if text is None else text
    includes = "".join(f"#include <tl/{header}.h>\n" for header in ["common", *headers])
    return compile_code_object(includes + source, arch, [KERNEL.search(source)[1]])


def usage(code: CodeObject):
    (found,) = code.resource_usage.values()
    return found


@pytest.mark.parametrize("header", sorted(HEADERS))
def test_header_alone(header):
    source = f'#include <tl/{header}>\nextern "C" __global__ void empty_kernel() {{}}\n'
    if header == "ocml.h":
        source = "#include <tl/platform.h>\n" + source
    assert compile_code_object(source, "gfx942", ["empty_kernel"]).cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("arch", ARCHS)
def test_scalars_on(arch):
    names = ["fast_math", "packed", "rounding", "scalar", "warp", "words"]
    text = (SOURCES / "scalars.cu").read_text()
    # Of double, quotients and roots round to nearest alone.
    text = text.replace("d[0] = rounded(d[1], d[2])", "d[0] = tl::div_rn(d[1], tl::sqrt_rn(d[2]))")
    found = compiled("scalars", arch, names, text)
    assert usage(found).spill_stores == 0
    for instruction in ("ds_bpermute_b32", "v_exp_f32", "v_pk_fma_f16", "s_setreg_imm32_b32"):
        assert instruction in found.assembly


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_warps_of_all_types_on(arch):
    found = compiled("warps", arch, ["reduce"])
    assert usage(found).stack == 0
    # Neighbours in a row of 16 lanes, and in 32, take no addresses.
    assert "row_ror:8" in found.assembly
    assert "ds_swizzle_b32" in found.assembly


@pytest.mark.parametrize("arch", ARCHS)
def test_atomics_on(arch):
    found = compiled("atomics", arch, ["atomic"])
    assert usage(found).stack == 0
    # One instruction, no loop around a compare-and-swap.
    adds = len(re.findall(r"(?:flat|global)_atomic_(?:pk_)?add_(?:f32|f64)", found.assembly))
    assert adds > (4 if arch != "gfx1100" else 0)
    assert ("atomic_pk_add_f16" in found.assembly) == (arch in ("gfx942", "gfx950"))


@pytest.mark.parametrize("name", ["sub_byte", "float8"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_narrow_types_stay_in_registers(name, arch):
    # pow is a function of ROCm's library.
    text = (SOURCES / f"{name}.cu").read_text().replace("tl::pow(v, v)", "v")
    found = compiled(name, arch, ["subbyte"], text)
    assert usage(found).stack == 0
    assert ("v_cvt_f32_fp8" in found.assembly) == (name == "float8" and arch == "gfx950")


@pytest.mark.parametrize("arch", PRODUCTS)
def test_every_mfma(arch):
    text = (SOURCES / "mfma.cu").read_text().replace("  PRODUCTS", PRODUCTS[arch])
    found = compiled("mfma", arch, ["mfma"], text)
    assert (usage(found).stack, usage(found).spill_stores) == (0, 0)
    made = set(re.findall(r"\bv_mfma_\w+", found.assembly))
    assert len(made) == text.count("product<")


@pytest.mark.parametrize(
    ("arch", "product", "instruction", "times"),
    [
        ("gfx90a", "32, 32, int8_t, int", "i32_32x32x8_?i8", 4),
        ("gfx942", "16, 64, fp8_e4_fnuz_t, float", "f32_16x16x32_fp8_fp8", 2),
        ("gfx942", "32, 8, tfloat32_t, float", "f32_32x32x4_xf32", 2),
        ("gfx950", "16, 16, float, float", "f32_16x16x4_?f32", 4),
        ("gfx950", "16, 8, double, double", "f64_16x16x4_?f64", 2),
    ],
)
def test_16_bytes_of_an_operand_are_several_instructions(arch, product, instruction, times):
    text = (SOURCES / "mfma.cu").read_text()
    found = compiled(
        "mfma", arch, ["mfma"], text.replace("  PRODUCTS", f"  product<{product}>(x, out);")
    )
    made = re.findall(r"\bv_mfma_(\w+)", found.assembly)
    assert len(made) == times
    assert all(re.fullmatch(instruction, name) for name in made)
    assert usage(found).stack == 0


def test_a_scaled_mfma():
    found = compiled("", "gfx950", ["mfma"], SCALED)
    made = re.findall(r"v_mfma_scale_f32_(\w+) .*", found.assembly)
    assert made == ["16x16x128_f8f6f4", "32x32x64_f8f6f4"] * 2
    # The formats of the second operand, which is A of the call.
    assert re.findall(r"v_mfma_scale_\w+ .*cbsz:(\d)", found.assembly) == ["4", "2", "3"]
    assert re.findall(r"v_mfma_scale_\w+ .*blgp:(\d)", found.assembly) == ["1", "3", "4"]
    assert usage(found).stack == 0


def test_f8f6f4_without_scales():
    products = "".join(
        f"product<{shape}, {t}, float>(x, out);"
        for t in ("fp8_e4_t", "fp8_e5_t")
        for shape in ("32, 64", "16, 128")
    )
    text = (SOURCES / "mfma.cu").read_text().replace("  PRODUCTS", products)
    found = compiled("mfma", "gfx950", ["mfma"], text)
    assert usage(found).stack == 0
    made = re.findall(r"\bv_mfma_f32_(\w+) .*?(cbsz:1 blgp:1)?$", found.assembly, re.MULTILINE)
    assert sorted(made) == sorted(
        (f"{shape}_f8f6f4", modifiers)
        for shape in ("32x32x64", "16x16x128")
        for modifiers in ("", "cbsz:1 blgp:1")
    )


def test_every_wmma():
    text = """extern "C" __global__ void __launch_bounds__(32) products(
    const half_t* a, const bfloat16_t* b, const int8_t* c, float* f, int* i) {
  tl::wmma<16, 16, 16, half_t, float>(f, a, a);
  tl::wmma<16, 16, 16, bfloat16_t, float>(f, b, b);
  tl::wmma<16, 16, 16, int8_t, int>(i, c, c);
}
"""
    found = compiled("", "gfx1100", ["wmma"], text)
    assert re.findall(r"v_wmma_(\w+) .*?(neg_lo:\[1,1,0\])?$", found.assembly, re.MULTILINE) == [
        ("f32_16x16x16_f16", ""),
        ("f32_16x16x16_bf16", ""),
        ("i32_16x16x16_iu8", "neg_lo:[1,1,0]"),
    ]


def test_transposing_reads():
    text = "".join(
        f"""extern "C" __global__ void __launch_bounds__(64) kernel{bits}(uint2* x) {{
  auto rows = tl::shared<uint2, 64>(tl::dynamic_shared());
  rows[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  tl::ds_read_tr{bits}(rows + threadIdx.x, x + threadIdx.x);
}}
"""
        for bits in (16, 8, 4)
    )
    found = compiled("", "gfx950", ["ds_read_tr"], text)
    made = re.findall(r"\b(ds_read_b64_tr_b\d+) v\[\d+:\d+\], v\d+", found.assembly)
    assert made == ["ds_read_b64_tr_b16", "ds_read_b64_tr_b8", "ds_read_b64_tr_b4"]


def test_another_mfma_does_not_compile():
    text = (SOURCES / "mfma.cu").read_text()
    text = text.replace("  PRODUCTS", "  product<16, 8, tfloat32_t, float>(x, out);")
    with pytest.raises(RuntimeError, match="this architecture has no such MFMA"):
        compiled("mfma", "gfx950", ["mfma"], text)


@pytest.mark.skipif(find_math_library() is None, reason="ROCm's device library is not here")
def test_functions_of_all_types():
    assert "__ocml" not in compiled("math", "gfx942", []).assembly
