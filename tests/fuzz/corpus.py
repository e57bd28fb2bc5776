"""Past findings: inputs that once crashed the interpreter, took its memory, or raised another exception."""

from __future__ import annotations

import gzip

ARFF = b"@relation r\n@attribute a %s\n@attribute class hierarchical %s\n@data\n0.5,1\n"

# Reader, content. All are refused by a DataFormatError.
FILES: dict[str, tuple[str, bytes]] = {
    "a value of 100,000 digits": ("svmlight", b"1 1:0." + b"3" * 100_000 + b"\n"),
    "a value above float32": ("svmlight", b"1 1:1e39\n"),
    "an index of 5,000 digits": ("svmlight", b"1 " + b"9" * 5000 + b":1\n"),
    "a label of 5,000 digits": ("xmlc", b"1 1 1\n" + b"9" * 5000 + b" 0:1\n"),
    "a count of 5,000 digits": ("cluto", b"9" * 5000 + b" 1 1\n1 1\n"),
    "a count beyond 64 bits": ("cluto", b"1 99999999999999999999 1\n1 1\n"),
    "a cluto value above float32": ("cluto dense", b"1 1\n1e39\n"),
    "a nominal value above the limit of csv": ("arff", ARFF % (b"{" + b"x" * 200_000 + b"}", b"1")),
    "a class of 5,000 levels": ("arff", ARFF % (b"numeric", b"1" + b"/1" * 5000)),
    "an ARFF value above float32": ("arff", ARFF.replace(b"0.5", b"1e39") % (b"numeric", b"1")),
    "deep JSON": ("jsonl", b"[" * 100_000),
    "an integer of 5,000 digits in JSON": ("jsonl", b'{"text": "a", "label": ' + b"9" * 5000 + b"}"),
    "an open quote": ("csv", b'text,label\n"a\n'),
    "gzip that ends early": ("jsonl", gzip.compress(b'{"text": "a", "label": "b"}' * 50)[:-20]),
    "gzip with damaged content": ("csv", gzip.compress(b"text,label\na,b\n" * 50)[:40] + b"\xff" * 40),
}

# Target, seed: inputs that were findings of earlier runs.
SEEDS: list[tuple[str, int]] = []
