"""Every example on gfx950, in the emulator with its checks; those that cannot run say why.

`amd_examples.py` has some of them with tiles for AMD's chips; here they are as they stand.
"""

import pathlib
import re
import runpy

import pytest

ARCH = "gfx950"
EXAMPLES = runpy.run_path(
    str(pathlib.Path(__file__).parents[1] / "examples" / "test_examples.py"), run_name="examples"
)
RUNS = EXAMPLES["RUNS"] | {"quickstart": ("", None), "softmax": ("", None), "rms_norm": ("", None)}
# Those that ask for what NVIDIA's chips have, with the error's text.
REFUSED = {
    "convolution_any_shape": "wanted one of kind cuda",
    "convolution_few_channels": "wanted one of kind cuda",
    "gemm_any_shape": "wanted one of kind cuda",
    "dequantize_gemv": "found tl::mma_sync for gfx950, wanted sm_80 or later",
    "gemm_sp": "T.gemm_sp: found a tile of 128x128x64 that no tensor core multiplies",
    "gemm_few_rows": "found tl::mma_sync for gfx950, wanted sm_80 or later",
}


def run(name, monkeypatch):
    """What an example prints."""
    options, _ = RUNS[name]
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    return EXAMPLES["run"](name, options, f"hip -mcpu={ARCH}", monkeypatch)


@pytest.mark.parametrize("name", sorted(set(RUNS) - set(REFUSED)))
def test_example_is_right_on_gfx950(name, monkeypatch):
    _, checks = RUNS[name]
    lines = run(name, monkeypatch)
    assert checks is None or len(lines) == checks, lines


@pytest.mark.parametrize("name", REFUSED)
def test_example_of_nvidia_says_what_it_wants(name, monkeypatch):
    with pytest.raises((ValueError, SystemExit)) as error:
        run(name, monkeypatch)
    assert re.search(REFUSED[name], str(error.value))
