"""Comparing commits of a stand-in for the package: processes, turns, reports, exit statuses."""

import json

import pytest

from tilelang.testing import perf_regression
from tilelang.testing.perf import history
from tilelang.testing.perf.build import Trees
from tilelang.testing.perf.gpu_state import gpu_state
from tilelang.testing.perf.report import Report, draw
from tilelang.testing.perf.run import Comparing, Failed, Options, Side


@pytest.fixture
def compare(repository, tmp_path, capsys):
    """Runs the command on two commits: its status and the report."""

    def run(base, head, *options):
        status = perf_regression.main(
            [
                *("--base", base, "--head", head, "--device", "emulator"),
                *("--repository", str(repository.folder), "--work", str(tmp_path / "work")),
                *("--output", str(tmp_path / "report"), "--compilations", "6", *options),
            ],
            repository.build,
        )
        if status == 2:
            return status, capsys.readouterr().err
        return status, (tmp_path / "report" / "report.md").read_text()

    return run


def test_a_commit_and_itself(compare):
    status, text = compare("base", "base", "--compile-threshold", "1")
    assert status == 0
    assert "0 slower, 0 faster, 2 unchanged, 0 failed" in text
    assert "no regressions" in text
    assert text.count("the same in all cases") == 3


@pytest.mark.parametrize("option", ["--turns", "--compilations"])
def test_too_few_times_are_refused(compare, capsys, option):
    with pytest.raises(SystemExit) as ended:
        compare("base", "base", option, "2")
    assert ended.value.code == 2
    assert "found 2, wanted 6 or more" in capsys.readouterr().err


def test_costs_and_compile_time_that_grow(repository, compare, tmp_path):
    head = repository.commit("head", REGISTERS=48, SPILLS=16, LOOPS=4)
    file = tmp_path / "history" / "nights.jsonl"
    status, text = compare("base", head, "--history", str(file))
    assert status == 1
    assert "1 slower, 0 faster, 1 unchanged, 0 failed, 1 compile slower" in text
    assert "compilation of all together slower: 1 regression**" in text
    assert text.count("| slower |") == 2
    assert "| some: a kernel | spills, bytes 0 → 16 |" in text
    assert "| some: a kernel | 40 | 48 |" in text
    (line,) = history.read(file)
    assert json.loads((tmp_path / "report/results.json").read_text()) == line
    assert line["cases"]["some: a kernel"]["compile_ratio"] > 2
    assert line["cases"]["some: a kernel"]["costs"]["spills"] == 16
    back, text = compare(head, "base")
    assert back == 0
    assert "0 slower, 1 faster" in text
    assert "1 compile faster" in text


@pytest.mark.parametrize(
    ("trouble", "why"),
    [("error", "ValueError: not \\| this"), ("crash", "the process ended with -6")],
)
def test_a_case_that_fails_in_head(repository, compare, trouble, why):
    head = repository.commit("head", TROUBLE=trouble)
    status, text = compare("base", head)
    assert status == 1
    assert f"| some: a kernel | head | `{why}` |" in text
    assert "1 unchanged, 1 failed" in text
    assert compare(head, "base")[0] == 0
    assert compare(head, head)[0] == 0


def test_what_cannot_be_compared(repository, compare):
    status, text = compare("base", "nowhere")
    assert status == 2
    assert "rev-parse" in text
    status, text = compare("base", "base", "--cases", "nowhere")
    assert status == 2
    assert "base cannot list its cases" in text
    assert "found no case in" in text
    status, text = compare("base", "base", "--only", "^a kernel")
    assert status == 2
    assert "found no case whose name '^a kernel' finds" in text
    (repository.folder / "tilelang/__init__.py").write_text("raise ImportError('half a package')")
    repository.commit("unusable")
    status, text = compare("base", "unusable")
    assert status == 2
    assert "head cannot list its cases" in text
    assert "half a package" in text


def results_on_gpu(repository, tmp_path, head):
    options = Options("cuda", repository.folder / "benchmark", only="a time", turns=10)
    with Trees(repository.folder, tmp_path / "work", repository.build) as trees:
        base, head = trees.add("base"), trees.add(head)
        results = list(Comparing(base, head, options).results())
    return Report(base, head, options, results, {"before": {}, "after": {}})


def test_times(repository, tmp_path):
    head = repository.commit("head", MILLISECONDS=2.06)
    report = results_on_gpu(repository, tmp_path, head)
    (found,) = report.regressions
    assert found.time.sessions == 2
    assert found.time.interval.estimate == pytest.approx(1.03, abs=2e-3)
    assert found.compile is None
    assert "1 slower" in report.text()
    times = f"{found.time.base:.4g} | {found.time.head:.4g} | {found.time.interval}"
    assert f"| some: a time | {times} |" in report.text()
    assert "nvidia-smi is not there" in report.text()
    assert not results_on_gpu(repository, tmp_path, "base").regressions


def test_cases_that_use_the_gpu_when_they_are_imported(repository, tmp_path):
    (tmp_path / "regression_early.py").write_text(
        "import torch\ntorch.cuda.init()\n"
        "from tilelang.testing import process_func\nprocess_func(len)\n"
    )
    tree = repository.folder
    with Side(tree, tmp_path, "cuda") as side, pytest.raises(Failed, match="found a GPU in use"):
        side.ask(job="list")


def test_a_process_that_does_not_answer(repository, tmp_path):
    head = repository.commit("head", TROUBLE="hang")
    with Trees(repository.folder, tmp_path / "work", repository.build) as trees:
        tree = trees.add(head).path
        with Side(tree, repository.folder / "benchmark", "emulator", seconds=2) as side:
            names = side.ask(job="list")
            with pytest.raises(Failed, match="no answer in 2 s"):
                side.ask(job="compile", case="some: a kernel")
            assert side.ask(job="list") == names


def test_plots(repository, compare, tmp_path):
    pytest.importorskip("matplotlib")
    _, text = compare("base", "base")
    assert "![ratios](regression.svg)" in text
    assert "<svg" in (tmp_path / "report" / "regression.svg").read_text()
    assert not draw([], tmp_path / "none.svg")
    line = json.loads((tmp_path / "report" / "results.json").read_text())
    assert history.draw([line, {**line, "cases": {}}, line], tmp_path / "history.svg")
    assert "<svg" in (tmp_path / "history.svg").read_text()


def test_values_of_a_history_are_relative():
    nights = [{"a": 2.0}, {"b": 3.0}, {"a": 3.0, "b": 3.0}]
    lines = [{"cases": {k: {"milliseconds": v} for k, v in n.items()}} for n in nights]
    assert history.relative(lines, "milliseconds") == {"a": [1, None, 1.5], "b": [None, 1, 1]}
    assert history.relative(lines, "compile") == {}


def test_a_history_that_is_cut_off(tmp_path):
    history.append(tmp_path / "nights.jsonl", {"cases": {}})
    with (tmp_path / "nights.jsonl").open("a") as file:
        file.write('{"cas')
    with pytest.raises(ValueError, match=r"nights\.jsonl:2"):
        history.read(tmp_path / "nights.jsonl")


def test_the_state_of_the_gpu(tmp_path):
    command = tmp_path / "nvidia-smi"
    command.write_text(
        "#!/bin/sh\necho NVIDIA X, 580.1, 1980, 2619, 41, 120.5, 0x0000000000000044\n"
    )
    command.chmod(0o755)
    found = gpu_state(str(command))
    assert found["SM clock, MHz"] == "1980"
    assert found["throttle reasons"] == "power cap, hardware thermal slowdown"
    assert gpu_state(str(tmp_path / "none")) == {}
    command.write_text("#!/bin/sh\necho no devices were found\nexit 6\n")
    assert gpu_state(str(command)) == {}
