"""What every fitting loop shares: its trace, its progress bar, the checkpoints it resumes from."""

from arbora.infer.trace import Trace

__all__ = ["Trace"]
