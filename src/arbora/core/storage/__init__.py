"""What is kept on disk: atomic files, their owners, fingerprints and checkpoints."""
