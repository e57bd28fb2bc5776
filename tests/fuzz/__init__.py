"""Fuzzing: hostile input for readers, structures, model files, estimators, the server and the page.

    PYTHONPATH=tests python -m fuzz --minutes 10 --count 1000000

A target makes one hostile input from a seed, gives it to the library, and returns whether it was accepted or refused.
Only documented exceptions count as refused. Any other one, a crash, or more than ten processor seconds for an input
(sixty of the clock) is a finding.
A target is prepared once, in a process that forks workers and replaces them when they die. A finding is repeated by
its seed:

    PYTHONPATH=tests python -m fuzz --only readers --seed 4711 --count 1

`corpus.py` keeps past findings; `tests/fuzz/test_corpus.py` replays them in the tests.
"""
