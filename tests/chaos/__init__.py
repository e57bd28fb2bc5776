"""Chaos: processes are killed at random moments, disks are full or read-only, clocks go back; nothing may be lost.

    PYTHONPATH=tests python -m chaos --minutes 10 --trials 20

Every scenario has an action (train, save, ...), does something bad to it at a random moment, and then looks: the old
model or the new one is there, complete and with right checksums, and the next run succeeds and leaves no temporary
file. Actions run in forked processes, so that a trial costs no start of Python. The clock of the machine is not
changed: the process sees one that goes back.
"""
