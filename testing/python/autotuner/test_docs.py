"""The page about tuning runs as it stands."""

import pathlib
import re
import runpy

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"


def test_the_page_runs(tmp_path, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "autotuning.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    (tmp_path / "page.py").write_text("\n".join(blocks))
    runpy.run_path(str(tmp_path / "page.py"))
    said = capsys.readouterr().out
    assert "'block':" in said
    assert "registers" in said
    assert "FLOP per byte" in said
