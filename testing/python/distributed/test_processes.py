"""Teams of processes, by gloo on the CPU: what they exchange, and who is missing."""

import subprocess
import sys
import textwrap

SCRIPT = """
import os, sys, datetime
import torch.distributed as dist
from tilelang.distributed import team as teams

rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=3)
team = teams.current_team()
assert (team.rank, team.size) == (rank, 3)
assert team.exchange("numbers", rank * 10) == [0, 10, 20]
pair = dist.new_group([0, 2])
if rank != 1:
    two = teams.current_team(pair)
    assert two.exchange("names", "ab"[two.rank]) == ["a", "b"]
else:
    try:
        teams.current_team(pair)
    except ValueError as error:
        print(error)
team.time_limit = 2
if rank == 2:
    os._exit(0)
try:
    team.exchange("a launch", None)
except RuntimeError as error:
    print(error)
os._exit(0)
"""


def test_processes_exchange_and_name_who_is_missing(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(SCRIPT))
    runs = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], outputs
    assert "rank 0 has waited 2 s for rank 2 to come to a launch" in outputs[0][0]
    assert "this process is no member of the group" in outputs[1][0]
    assert "rank 1 has waited 2 s for rank 2 to come to a launch" in outputs[1][0]
