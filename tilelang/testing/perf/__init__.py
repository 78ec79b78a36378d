"""Comparing the speed of two commits; ``python -m tilelang.testing.perf_regression`` runs it.

`build` makes a worktree of each commit, `run` starts a process in each, in which `worker` answers:
it runs the cases of `cases` under that commit's package and looks at `costs`. `statistics` judges
the times, `report` and `history` write. The modules that `worker` needs are those of the package
that runs the command, on both sides: their imports of each other are relative.
"""
