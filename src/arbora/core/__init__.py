"""Tools of every long computation, independent of any model: traces, checkpoints, files, memory, chunks, engines.

The package itself imports nothing, so that ``import arbora`` is fast. Import from its modules.
"""
