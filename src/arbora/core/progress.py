"""A progress bar with the remaining time.

A bar is drawn on a terminal only, so that log files and test runs stay clean; ``verbose=2`` always draws it.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

from tqdm import tqdm


class Progress:
    """Counter of finished steps, shown as a bar with the remaining time and the latest objective and gap.

    Parameters
    ----------
    total : int, optional
        Number of steps. Default: unknown; the bar shows the count and the speed.
    label : str
        Name of the work, at the left of the bar.
    verbose : int or bool
        0: no bar. 1: a bar if the standard error stream is a terminal. 2 or more: always a bar.

    Notes
    -----
    Any thread may call `update`. Leaving the ``with`` block, also by an error, or calling `close` ends the bar.

    Examples
    --------
    >>> from arbora.core.progress import Progress
    >>> with Progress(total=3, label="sweeps", verbose=1) as progress:
    ...     for sweep in range(3):
    ...         progress.update(objective=-1.5 * sweep, gap=0.1)
    >>> progress.n
    3
    """

    def __init__(self, total: int | None = None, label: str = "", verbose: int | bool = 1) -> None:
        if total is not None and total < 0:
            raise ValueError(f"total must not be negative, got {total}")
        self.total = total
        self.label = label
        self.n = 0
        self._lock = threading.Lock()
        self._shown: dict[str, float] = {}
        # Outside a terminal each redrawing is a new line, so redraw rarely there.
        terminal = sys.stderr is not None and sys.stderr.isatty()
        visible = sys.stderr is not None and (verbose >= 2 or (verbose >= 1 and terminal))
        self._bar: tqdm[Any] | None = None
        if visible:
            interval = 0.1 if terminal else 10.0
            self._bar = tqdm(total=total, desc=label or None, mininterval=interval, dynamic_ncols=True)

    @property
    def visible(self) -> bool:
        """Whether a bar is drawn."""
        return self._bar is not None

    def update(
        self, n: int = 1, *, objective: float | None = None, gap: float | None = None, **extra: float
    ) -> None:
        """Count ``n`` more steps as done.

        Parameters
        ----------
        n : int
            Steps done since the last call.
        objective, gap : float, optional
            Latest values, shown at the right of the bar.
        **extra : float
            Other numbers to show.

        Examples
        --------
        >>> from arbora.core.progress import Progress
        >>> progress = Progress(total=10, label="epochs", verbose=0)
        >>> progress.update(4, gap=0.25)
        >>> progress.n
        4
        """
        given = {"objective": objective, "gap": gap, **extra}
        with self._lock:
            self.n += n
            self._shown.update({name: value for name, value in given.items() if value is not None})
            if self._bar is not None:
                if self._shown:
                    text = ", ".join(f"{name}={value:.4g}" for name, value in self._shown.items())
                    self._bar.set_postfix_str(text, refresh=False)
                self._bar.update(n)

    def close(self) -> None:
        """Draw the bar for the last time.

        Examples
        --------
        >>> from arbora.core.progress import Progress
        >>> Progress(total=1, verbose=0).close()
        """
        with self._lock:
            if self._bar is not None:
                self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Progress: {self.label + ' ' if self.label else ''}{self.n}/{self.total or '?'}>"
