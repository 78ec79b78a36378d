"""Tests of the emulator itself, which say what its usual schedule does."""

import pytest


@pytest.fixture(autouse=True)
def usual_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever schedule the environment asks of the other tests."""
    for name in ("SEED", "SCHEDULE", "WORKERS"):
        monkeypatch.delenv(f"TILELANG_EMULATE_{name}", raising=False)
