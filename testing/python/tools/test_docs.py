"""docs/tools.md: its code runs, and leaves the files that it names."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"


def test_the_code_of_the_page(monkeypatch, tmp_path, capsys, define):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILELANG_EMULATE_CHECKS", "0")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace = define("\n".join(blocks))
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files == {
        *("gemm.html", "passes.html", "timeline.html", "timeline.json"),
        "tmp/gemm/layouts.html",
    }
    product = namespace["a"].float() @ namespace["b"].float()
    assert (namespace["c"].float() - product).abs().max() < 0.2
    said = capsys.readouterr().out
    assert "'LowerTileOp'" in said
    assert "1.678e+07 FLOP, " in said
