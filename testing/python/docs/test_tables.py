"""The tables of configuration have everything that the sources read."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
READS = re.compile(r"(?:environ(?:\.get)?|getenv)\W{1,3}\"((?:TILELANG|TL)_\w+)\"")
_spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "docs" / "tables.py")
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)


def test_every_variable_and_key_says_what_it_means():
    assert [name for name, _, meaning in tables.variables() if not meaning] == []
    assert [key for key, meaning in tables.pass_configs() if not meaning] == []


def test_every_key_is_in_one_of_the_two_tables():
    from tilelang.transform import PassConfigKey

    listed = {key for key, _ in tables.pass_configs()} | {*tables.WITHOUT_EFFECT}
    assert {key.value for key in PassConfigKey} == listed


def test_variables_of_ours_are_read_through_env_alone():
    """So that the table has them."""
    found = {
        (str(path.relative_to(ROOT)), name)
        for folder, suffix in (("tilelang", "py"), ("tilelang", "pyx"), ("src", "cc"), ("src", "h"))
        for path in (ROOT / folder).rglob(f"*.{suffix}")
        for name in READS.findall(path.read_text())
    }
    # A worker of the benchmarks sets it for the process that it is.
    assert {(p, n) for p, n in found if p != "tilelang/testing/perf/worker.py"} == set()


def test_the_search_for_reads_finds_them():
    assert READS.findall('os.environ.get("TILELANG_X", "1") getenv("TL_Y") environ["TL_Z"]') == [
        "TILELANG_X",
        "TL_Y",
        "TL_Z",
    ]
