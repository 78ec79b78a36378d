"""The logger named `tilelang`."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
from collections.abc import Iterator

logger = logging.getLogger("tilelang")
_heard: contextvars.ContextVar[list[tuple[int, str]] | None] = contextvars.ContextVar(
    "heard", default=None
)
_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("quiet", default=False)


def say(level: int, message: str, stacklevel: int = 2) -> None:
    """Logs what a compilation has to say, which a cached kernel says again (`listening`)."""
    if _quiet.get():
        return
    logger.log(level, "%s", message, stacklevel=stacklevel)
    heard = _heard.get()
    if heard is not None:
        heard.append((level, message))


@contextlib.contextmanager
def listening() -> Iterator[list[tuple[int, str]]]:
    """Notes the level and text of all that is said by `say` in a ``with`` statement."""
    heard: list[tuple[int, str]] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Logs nothing that `say` says in a ``with`` statement, of what was said before."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


class _TqdmHandler(logging.Handler):
    """Writes to stderr above progress bars instead of through them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        from tqdm import tqdm

        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except Exception:  # noqa: BLE001  as logging asks of handlers: report, do not raise into the user's code
            self.handleError(record)


def set_log_level(level: int | str) -> None:
    """Sets the level of the logger `tilelang`: a number or name of `logging`, such as
    ``"WARNING"``.

    Raises `ValueError` for an unknown name. Example: ``tilelang.set_log_level("DEBUG")``
    """
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise ValueError(
            f"set_log_level: found {level!r}, wanted a number, or DEBUG, INFO, WARNING, ERROR or "
            "CRITICAL"
        )
    logger.setLevel(number)


def setup_logging() -> None:
    """Gives the logger its handler and the level INFO, once."""
    if logger.handlers:
        return
    handler = _TqdmHandler()
    handler.setFormatter(
        logging.Formatter(
            "%(asctime)s  [TileLang:%(name)s:%(levelname)s] (%(filename)s:%(lineno)d): %(message)s"
        )
    )
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
