"""The workflows of GitHub: what they are written in, and what they may do."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
WRITES = "git push", "gh pr comment"
"""What a job with a token that can write uses it for."""


def parsed(path):
    workflow = yaml.safe_load(path.read_text())
    # `on` is true in YAML 1.1.
    return workflow | {"on": workflow.get("on", workflow.get(True))}


def steps(workflow):
    return [(job, step) for job in workflow["jobs"].values() for step in job["steps"]]


def permissions_of(workflow, job):
    return job.get("permissions", workflow["permissions"])


def test_there_are_workflows():
    names = {path.stem for path in WORKFLOWS}
    assert {"docs", "platforms", "nightly-perf", "regression-perf"} <= names


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_well_formed(path):
    workflow = parsed(path)
    assert workflow["name"]
    assert set(workflow["on"]) <= {
        *("push", "pull_request", "schedule", "workflow_dispatch", "issue_comment")
    }
    for name, job in workflow["jobs"].items():
        needs = job.get("needs", [])
        needs = [needs] if isinstance(needs, str) else needs
        assert set(needs) <= set(workflow["jobs"]) - {name}
        assert job["timeout-minutes"] <= 240
        # Another job's outputs: those that it has.
        for other, output in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", str(job)):
            assert other in needs
            assert output in workflow["jobs"][other]["outputs"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            assert set(step) <= {
                *("name", "id", "if", "env", "run", "uses", "with", "continue-on-error")
            }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_scripts_are_shell_and_take_texts_by_their_environment(path):
    """An expression in a script is pasted into it: a title or a branch's name would be run."""
    for _, step in steps(parsed(path)):
        if "run" not in step:
            continue
        assert "${{" not in step["run"]
        found = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True)
        assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_token_can_do_what_its_job_needs(path):
    workflow = parsed(path)
    assert set(dict(workflow["permissions"]).values()) <= {"read"}
    for job in workflow["jobs"].values():
        permissions = permissions_of(workflow, job)
        writes = "write" in permissions.values()
        assert writes == any(word in str(job["steps"]) for word in WRITES)
        # What runs code of the repository, or of a pull request, cannot write.
        runs_code = re.search(r"\bmake\b|perf_regression|self-hosted", str(job))
        assert not (writes and runs_code)
        for step in job["steps"]:
            action = step.get("uses", "actions/none@v0")
            assert re.fullmatch(r"actions/[\w-]+@v\d+", action), "not one of GitHub's own"
            if action.startswith("actions/checkout") and not writes:
                assert step["with"]["persist-credentials"] is False


def test_a_comment_starts_a_comparison_only_for_who_may_write():
    workflow = parsed(ROOT / ".github/workflows/regression-perf.yml")
    assert workflow["on"] == {"issue_comment": {"types": ["created"]}}
    jobs = workflow["jobs"]
    # The first job decides, and the others are behind it.
    assert "author_association" in jobs["allow"]["if"]
    assert "issue.pull_request" in jobs["allow"]["if"]
    (script,) = [step["run"] for step in jobs["allow"]["steps"]]
    assert "collaborators/$AUTHOR/permission" in script
    assert "admin | write) ;;" in script
    assert jobs["measure"]["needs"] == "allow"
    assert "needs.allow.result == 'success'" in jobs["answer"]["if"]
    # What is measured is what was there when the comment was written.
    assert 'if [[ ! "$pushed" < "$COMMENTED" ]]' in script
    assert jobs["measure"]["permissions"] == {"contents": "read"}
    assert jobs["answer"]["permissions"] == {"pull-requests": "write"}
    # The job that can answer has neither the code nor what the report may link to.
    assert "checkout" not in str(jobs["answer"])
    assert "[ ! -L report.md ]" in str(jobs["answer"])


@pytest.mark.parametrize(
    ("pushed", "allowed"),
    [
        ("2026-01-02T10:00:00Z", True),
        ("2026-01-02T10:00:01Z", False),  # the second of the comment
        ("2026-01-02T10:00:02Z", False),
        ("null", False),  # the fork is gone
    ],
)
def test_what_was_pushed_after_the_comment_is_not_measured(pushed, allowed, tmp_path):
    """The script of the first job, with a program in the place of GitHub's."""
    workflow = parsed(ROOT / ".github/workflows/regression-perf.yml")
    (step,) = workflow["jobs"]["allow"]["steps"]
    (tmp_path / "gh").write_text("#!/bin/sh\ncase $2 in *permission) echo write;; esac\n")
    (tmp_path / "jq").write_text(f"#!/bin/sh\necho {pushed}\n")
    for name in ("gh", "jq"):
        (tmp_path / name).chmod(0o755)
    output = tmp_path / "output"
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "COMMENTED": "2026-01-02T10:00:01Z",
        "GITHUB_OUTPUT": str(output),
    } | dict.fromkeys(("GH_TOKEN", "REPOSITORY", "NUMBER", "AUTHOR"), "x")
    found = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (found.returncode == 0) == allowed, found.stdout + found.stderr
    assert output.exists() == allowed
