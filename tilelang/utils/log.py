"""The logger named `tilelang`."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("tilelang")


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
    logger.setLevel(level.upper() if isinstance(level, str) else level)


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
