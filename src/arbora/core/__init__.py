"""What every long computation needs and that knows no model: traces, progress, checkpoints, files, memory, checks.

Nothing is imported here, so that ``import arbora`` stays cheap: import from the modules.
"""
