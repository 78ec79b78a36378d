"""What passes change: as values, as text, as a page, and who asks for them."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.env import env
from tilelang.tools import lower_trace as tracing
from tilelang.tools import pass_diff as module
from tilelang.tools.lower_trace import Step, Trace, lower_trace
from tilelang.tools.pass_diff import Change, PassDiff, Row
from tilelang.utils.pass_diff import pass_diff

TARGET = "cuda -arch=sm_90a"


@T.prim_func
def fill(A: T.Tensor((64,), "float32"), value: T.float32):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = value


def trace(*scripts):
    made = Trace("main")
    made.steps += [Step(name, script) for name, script in scripts]
    return made


def test_lines_stand_beside_what_they_became():
    before = ["def f():", "    x = load(A, 0)", "    store(B, x)"]
    after = ["def f():", "    with block:", "        x = load(A, 0, 16)", "        store(B, x)"]
    (rows,) = Change("Simplify", before, after).hunks
    assert rows == [
        Row((1, "def f():"), (1, "def f():")),
        Row(None, (2, "    with block:")),
        Row((2, "    x = load(A, 0)"), (3, "        x = load(A, 0, 16)")),
        Row((3, "    store(B, x)"), (4, "        store(B, x)")),
    ]
    assert (Change("Simplify", before, after).removed, Change("", before, after).added) == (2, 3)


def test_far_lines_are_left_out():
    lines = [f"line {n}" for n in range(30)]
    (rows,) = Change("P", lines, [*lines[:20], "new", *lines[20:]]).hunks
    assert [row.after[1] for row in rows] == [*lines[17:20], "new", *lines[20:23]]


def test_text_and_page_of_a_trace(tmp_path):
    found = PassDiff(
        trace(("trace", "a = 1\nb < 2"), ("Check", "a = 1\nb < 2"), ("Fold", "a = 1\nb < 3"))
    )
    assert found.text().splitlines() == [
        "# main",
        "unchanged by Check",
        "Fold: +1 -1 lines",
        "--- before",
        "+++ after Fold",
        "@@ -1,2 +1,2 @@",
        " a = 1",
        "-b < 2",
        "+b < 3",
    ]
    page = found.html()
    assert '<td class="removed">b &lt; <b>2</b></td>' in page
    assert '<td class="added">b &lt; <b>3</b></td>' in page
    assert "unchanged by Check" in page
    assert found.save(tmp_path / "a" / "main.diff").read_text() == found.text()
    assert found.save(tmp_path / "a" / "main.html").read_text() == page


def test_every_pass_of_a_program_is_there():
    found = pass_diff(fill, TARGET)
    names = [change.name for change in found.changes]
    assert names[0] == "BindTarget"
    assert names[-1] == "SplitHostDevice"
    (lowered,) = [change for change in found.changes if change.name == "LowerTileOp"]
    assert any("T.Parallel" not in line and "threadIdx" in line for line in lowered.after)
    # Each program is what the next pass begins with.
    for one, following in zip(found.changes, found.changes[1:], strict=False):
        assert one.after == following.before


def test_the_environment_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TILELANG_PASS_DIFF", "1")
    monkeypatch.setenv("TILELANG_PASS_DIFF_OUTPUT", str(tmp_path / "diffs"))
    tilelang.lower(fill, target=TARGET)
    assert sorted(p.name for p in (tmp_path / "diffs").iterdir()) == ["fill.diff", "fill.html"]
    assert "SplitHostDevice: +" in (tmp_path / "diffs" / "fill.diff").read_text()


def test_a_pass_that_refuses_the_program_leaves_the_passes_before_it(tmp_path, monkeypatch):
    @T.prim_func
    def wrong(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((32,), "float32")
            for i in T.Parallel(64):
                S[i] = A[i]

    monkeypatch.setenv("TILELANG_PASS_DIFF", "1")
    monkeypatch.setenv("TILELANG_PASS_DIFF_OUTPUT", str(tmp_path))
    with pytest.raises(ValueError, match="found index 32 of S"):
        tilelang.lower(wrong, target=TARGET)
    text = (tmp_path / "wrong.diff").read_text()
    assert "MaterializeKernelLaunch: +" in text
    assert "CheckBounds" not in text


def test_a_kept_program_is_lowered_again_for_who_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    tilelang.compile(fill, target=TARGET, execution_backend="emulate")
    with lower_trace() as traces:
        tilelang.compile(fill, target=TARGET, execution_backend="emulate")
    assert [t.name for t in traces] == ["fill"]
    assert "def fill" in traces[0].after("LayoutInference").script
    with pytest.raises(KeyError, match="wanted Nonsense"):
        traces[0].after("Nonsense")


def test_files_on_and_off(tmp_path, capsys):
    tracing.enable(tmp_path)
    try:
        tilelang.lower(fill, target=TARGET)
    finally:
        tracing.disable()
    assert not env.TL_LOWER_TRACE
    read = Trace.of_folder(tmp_path / "fill")
    assert read.name == "fill"
    assert [c.name for c in PassDiff(read).changes] == [
        c.name for c in pass_diff(fill, TARGET).changes
    ]
    assert module.main([str(tmp_path / "fill"), "-o", str(tmp_path / "f.html")]) == 0
    assert (tmp_path / "f.html").read_text() == PassDiff(read).html()
    capsys.readouterr()
    assert module.main([str(tmp_path / "fill")]) == 0
    assert capsys.readouterr().out == PassDiff(read).text()
    with pytest.raises(FileNotFoundError, match="TL_LOWER_TRACE=1"):
        Trace.of_folder(tmp_path)


def test_the_page_in_a_browser(tmp_path, shown, pipelined_gemm):
    path = pass_diff(pipelined_gemm, TARGET).save(tmp_path / "gemm.html")
    for scheme in ("light", "dark"):
        page = shown(path, "pass-diff", scheme)
        sections = page.locator("details")
        assert sections.count() > 10
        row = page.locator("details:has-text('LayoutInference') .added").first
        assert not row.is_visible()
        page.get_by_text("Open all").click()
        assert row.is_visible()
        # Changed lines can be told from the paper.
        background, paper = (
            page.locator(where).first.evaluate("e => getComputedStyle(e).backgroundColor")
            for where in (".added", "body")
        )
        assert background != paper
        page.get_by_text("Close all").click()
        assert not row.is_visible()
