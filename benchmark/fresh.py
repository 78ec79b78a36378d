"""Measurements in a new process with an empty cache, where nothing is imported or compiled yet."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any


def measure_fresh(script: str, name: str, **environment: str) -> Any:
    """Run `script` --fresh `name` in a new process with an empty cache; what it printed last, as
    JSON."""
    with tempfile.TemporaryDirectory() as cache:
        output = subprocess.run(
            [sys.executable, script, "--fresh", name],
            # NVRTC asks the driver's cache where there is a driver.
            env={
                **os.environ,
                "TILELANG_CACHE_DIR": cache,
                "CUDA_CACHE_DISABLE": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
    return json.loads(output.splitlines()[-1])
