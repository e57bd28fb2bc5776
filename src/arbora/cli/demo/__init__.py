"""``arbora demo``: classifiers, topics and topics over time on data that every installation has."""
