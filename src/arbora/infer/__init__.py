"""What every fitting loop shares: its trace, its progress bar, the checkpoints it resumes from."""

from arbora.infer.checkpoint import Checkpoint, CheckpointError, Piece
from arbora.infer.fingerprint import fingerprint
from arbora.infer.progress import Progress
from arbora.infer.trace import Trace

__all__ = ["Checkpoint", "CheckpointError", "Piece", "Progress", "Trace", "fingerprint"]
