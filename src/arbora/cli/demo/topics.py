"""Topics of the demo: flat topics, a tree of topics, and novel sentences."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from arbora.app.contents.nodes import About, Subject
from arbora.app.contents.topics import topics_content, topics_text, without_empty
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.app.reading import read_times
from arbora.arrays import Array, Ints, Matrix
from arbora.cli.demo.printing import WIDTH, print_paragraph, shorten_list
from arbora.datasets import Dataset
from arbora.discover import BayesianVMFMixture, HierarchicalVMFMixture, TemporalVMFMixture
from arbora.metrics.table import Table
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer

N_TOPICS = 12
BRANCHING = (4, 2, 2)
N_STARTS = 3  # random starts of the tree
LEVEL = 0.05  # share of ordinary documents that are called novel
# Chosen before the first run: it does not belong into the documentation of Python packages.
OUT_OF_PLACE = "Simmer the onions in butter until golden, then stir in the wine and serve with fresh bread"
_N_WORDS = 6


def branches(hierarchy: Hierarchy, labels: Iterable[Any]) -> Matrix:
    """Return the child of the root that each label belongs to.

    >>> branches(Hierarchy.from_paths(["top/a/f", "top/b"]), ["top/a/f", "top/b", "top"]).tolist()
    ['top/a', 'top/b', 'top']
    """
    labels = list(labels)
    paths = {label: hierarchy.path(label) for label in set(labels)}
    return np.array([paths[label][:2][-1] for label in labels], dtype=object)


def show_flat(data: Dataset, X: Any, names: Sequence[str]) -> Any:
    """Find flat topics of the training documents, print them, and return the model."""
    assert data.hierarchy is not None
    start = time.perf_counter()
    ids = np.flatnonzero(np.diff(X.indptr))
    n_topics = min(N_TOPICS, len(ids))
    model = BayesianVMFMixture(n_topics, n_jobs=-1, random_state=0, verbose=1).fit(X[ids])
    topic = model.predict(X[ids])
    size = np.bincount(topic, minlength=n_topics)
    words = [", ".join(word for word, _ in top) for top in model.top_features(names, n=_N_WORDS)]
    order = np.argsort(-size, kind="stable").tolist()
    rows = [(int(size[k]), shorten_list(words[k], WIDTH - 11)) for k in order if size[k]]
    print(Table(("documents", "words"), tuple(rows), (",d", "")))
    packages = branches(data.hierarchy, np.asarray(data.y_train, object)[ids])
    agreement = normalized_mutual_info_score(packages, topic)
    print_paragraph(
        f"{type(model).__name__} is fitted to the {len(ids):,} training documents without their labels. Its topics "
        f"and the {len(set(packages))} packages have a normalised mutual information (NMI) of {agreement:.2f} (1: "
        "the same partition). "
        f"{time.perf_counter() - start:.1f} s."
    )
    return model


def show_tree(documents: Documents, X: Any, vectorizer: Any, hierarchy: Hierarchy) -> Content:
    """Find a tree of topics of all documents, print it, and return its content."""
    start = time.perf_counter()
    documents, X, notices = without_empty(documents, X)
    model = HierarchicalVMFMixture(
        BRANCHING,
        init="top-down",
        concentration="shared",
        n_init=N_STARTS,
        n_jobs=-1,
        random_state=0,
        verbose=1,
    ).fit(X)
    names = [str(name) for name in vectorizer.feature_names_]
    settings = {"command": "demo", "model": type(model).__name__, "tree": list(BRANCHING), "seed": 0}
    content = topics_content(Subject(model, X, documents, names, vectorizer), None, About(settings, notices))
    print("\n".join(map(shorten_list, topics_text(content.nodes).splitlines())))
    top = [path[1] for path in model.predict_path(X)]
    agreement = normalized_mutual_info_score(branches(hierarchy, documents.y), top)
    print_paragraph(
        f"{type(model).__name__}, {len(BRANCHING)} levels below the root, on all {len(documents):,} documents; its "
        f"{BRANCHING[0]} topics on the first level and the packages have an NMI of {agreement:.2f}. "
        f"{time.perf_counter() - start:.1f} s."
    )
    return content


def show_novelty(model: Any, vectorizer: Any, sentences: Sequence[str], X_test: Any) -> None:
    """Print which sentences the flat topics call novel, and the share of novel test documents."""
    texts = [OUT_OF_PLACE, *sentences]
    X = vectorizer.transform(texts)
    has_words = np.diff(X.indptr) > 0
    novel = np.zeros(len(texts), bool)
    if has_words.any():
        novel[has_words] = model.is_novel(X[has_words], level=LEVEL)
    for sentence, is_known, is_novel in zip(texts, has_words, novel, strict=True):
        verdict = "novel" if is_novel else "ordinary" if is_known else "no known word"
        print(f"{verdict:13}  {textwrap.shorten(sentence, WIDTH - 17, placeholder=' ...')}")
    ordinary = X_test[np.flatnonzero(np.diff(X_test.indptr))]
    share = float(np.mean(model.is_novel(ordinary, level=LEVEL)))
    print_paragraph(
        f"Novel: a lower density than {100 * LEVEL:g}% of the training documents. Of the {ordinary.shape[0]:,} test "
        f"documents, which are ordinary, {100 * share:.1f}% are called novel. The first sentence was chosen before "
        "the first run as an example that does not belong to the corpus."
    )


# --- Topics over time of the demo, on a generated corpus ----------------------------------------------------
#
# The package contains no corpus with dates, so the demo generates one: notes of an invented archive. Each note is
# about one theme; the share of each theme by year is given, and its words change from early words to late words.


FIRST, LAST = 1990, 2014
N_NOTES = 3000
WORDS_A_NOTE = 20
TEMPORAL_STARTS = 5
PERSISTENCE = 0.995  # words change slowly; with 0.98 a theme that ends may go on as one that begins
FIELD = "date"
_OWN = 0.3  # share of the words of a note that come from its theme
_ALIVE = 0.1  # a theme is alive while its share is at least this fraction of its largest share
_TEMPORAL_WORDS = 3
_CELL = 33  # characters of a cell of words; two cells fit on a line
_COMMON = (
    "report system company today number part result public change group problem case point plan support week money "
    "question market test year people time work first new two way day place"
)


class Theme(NamedTuple):
    """A theme: its early words, its late words, and its weight in some years, linear between them."""

    name: str
    early: str
    late: str
    course: dict[int, float]


THEMES = (
    Theme(
        "mainframes",
        "mainframe terminal batch tape operator punch",
        "mainframe emulator migration legacy terminal archive",
        {1990: 6, 2002: 0},
    ),
    Theme(
        "databases",
        "query relational index table transaction lock",
        "query cluster replica shard index stream",
        {1990: 2, 2006: 4, 2014: 2},
    ),
    Theme(
        "web pages",
        "page hypertext browser link modem font",
        "page browser script style framework layout",
        {1993: 0, 2001: 6, 2014: 2},
    ),
    Theme(
        "file sharing",
        "music upload peer folder server swarm",
        "swarm torrent tracker copyright peer film",
        {1997: 0, 2002: 5, 2010: 0},
    ),
    Theme(
        "telephones",
        "handset battery antenna ringtone message keypad",
        "touch camera battery message application screen",
        {1996: 0, 2009: 6, 2014: 4},
    ),
    Theme(
        "learning machines",
        "kernel margin classifier feature label rule",
        "layer gradient network image label training",
        {2003: 0, 2014: 8},
    ),
)


class Life(NamedTuple):
    """Years of birth, peak and end of a theme or topic; the end is None if it is still alive."""

    birth: int
    peak: int
    end: int | None


class Archive(NamedTuple):
    """Notes with dates, the theme of each note, and the share of each theme in each year."""

    documents: Documents
    theme: Ints
    shares: Array


def true_shares() -> Array:
    """Return the share of each theme in each year, (n_years, n_themes).

    >>> bool(np.allclose(true_shares().sum(axis=1), 1))
    True
    """
    years = np.arange(FIRST, LAST + 1)
    weights = [np.interp(years, list(theme.course), list(theme.course.values())) for theme in THEMES]
    return np.asarray(np.transpose(weights) / np.sum(weights, axis=0)[:, None])


def life_of(share: Array) -> Life:
    """Return birth, peak and end of a theme, by the rule of `TemporalVMFMixture.dynamics`.

    >>> life_of(np.array([0.0, 0.2, 0.5, 0.04]))
    Life(birth=1991, peak=1992, end=1992)
    """
    alive = np.flatnonzero(share >= _ALIVE * share.max())
    end = None if alive[-1] == len(share) - 1 else FIRST + int(alive[-1])
    return Life(FIRST + int(alive[0]), FIRST + int(share.argmax()), end)


def make_archive(n_notes: int | None = None, random_state: int = 0) -> Archive:
    """Generate the archive, of `N_NOTES` notes by default."""
    n_notes, rng = n_notes or N_NOTES, np.random.default_rng(random_state)
    shares = true_shares()
    days = np.arange(f"{FIRST}-01-01", f"{LAST + 1}-01-01", dtype="datetime64[D]")
    dates = np.sort(rng.choice(days, n_notes))
    year = dates.astype("datetime64[Y]").astype(np.int64) + 1970 - FIRST
    theme = (rng.random(n_notes)[:, None] > shares[year].cumsum(axis=1)).sum(axis=1).clip(max=len(THEMES) - 1)
    texts, common = [], _COMMON.split()
    for t, k in zip((year / (LAST - FIRST)).tolist(), theme.tolist(), strict=True):
        of_theme, is_late = rng.random(WORDS_A_NOTE) < _OWN, rng.random(WORDS_A_NOTE) < t
        early, late = THEMES[k].early.split(), THEMES[k].late.split()
        kinds = [(late if b else early) if a else common for a, b in zip(of_theme, is_late, strict=True)]
        texts.append(" ".join(words[rng.integers(len(words))] for words in kinds))
    names = np.array([entry.name for entry in THEMES], dtype=object)
    documents = Documents.from_texts(
        texts,
        names[theme],
        name="generated archive",
        ids=[f"note {i + 1}" for i in range(n_notes)],
        fields={FIELD: dates.astype(str).tolist()},
    )
    return Archive(documents, theme, shares)


def match(theme: Ints, topic: Ints, n: int) -> list[int]:
    """Return the topic of each of n themes: the one-to-one assignment with the most matching notes.

    >>> match(np.array([0, 0, 1, 2, 2]), np.array([1, 1, 2, 0, 0]), 3)
    [1, 2, 0]
    """
    together = np.zeros((n, n), dtype=np.int64)
    np.add.at(together, (theme, topic), 1)
    return [int(column) for column in linear_sum_assignment(-together)[1]]


def find_topics(archive: Archive) -> tuple[Subject, Matrix, Ints]:
    """Fit the model to the texts and dates; return it with its rows, their times and their topics."""
    vectorizer = LtcVectorizer()
    X = vectorizer.fit_transform(archive.documents.texts or [])
    times = read_times(archive.documents, FIELD)
    model = TemporalVMFMixture(
        len(THEMES),
        bins="year",
        weights="evolving",
        prior={"persistence": PERSISTENCE},
        n_init=TEMPORAL_STARTS,
        n_jobs=-1,
        random_state=0,
        verbose=1,
    ).fit(X, times)
    names = [str(name) for name in vectorizer.feature_names_]
    return Subject(model, X, archive.documents, names, vectorizer), times, model.predict(X, times)


def lives_table(archive: Archive, model: Any, topics: list[int]) -> Table:
    """Return a table of the themes: years of birth, peak and end, true and found."""
    lives, rows = model.dynamics(level=_ALIVE), []
    for number, topic in enumerate(topics):
        true, life = life_of(archive.shares[:, number]), lives[topic]
        pairs = zip(true, map(_year, (life.birth, life.peak, life.end)), strict=True)
        notes = int((archive.theme == number).sum())
        rows.append((THEMES[number].name, notes, *(f"{a or '-':>4} / {b or '-':<4}" for a, b in pairs)))
    columns = ("theme", "notes", "born: true / found", "peak: true / found", "end: true / found")
    return Table(columns, tuple(rows), ("", ",d", "", "", ""))


def words_table(model: Any, names: list[str], topics: list[int]) -> Table:
    """Return a table of the themes: the first words of the topic at its birth and at its end."""
    lives, rows = model.dynamics(level=_ALIVE), []
    for number, topic in enumerate(topics):
        first, last = lives[topic].birth, lives[topic].end or model.times_[-1]
        words = model.vocabulary(topic, names, n=_TEMPORAL_WORDS, times=[first, last])
        lines = [
            f"{_year(moment.time)}: {', '.join(word for word, _ in moment.features)}" for moment in words
        ]
        cells = [shorten_list(line, _CELL) for line in lines]
        rows.append((THEMES[number].name, cells[0], cells[-1]))
    return Table(("theme", "words at its birth", "words at its end, or now"), tuple(rows))


def _year(moment: Any) -> int | None:
    return None if moment is None else int(moment.astype("datetime64[Y]").astype(np.int64)) + 1970


def show_time() -> Content:
    """Generate the archive, find its topics, print both, and return the content of the topics."""
    start = time.perf_counter()
    archive = make_archive()
    subject, times, topic_of = find_topics(archive)
    model, notes = subject.estimator, archive.documents
    topics = match(archive.theme, topic_of, len(THEMES))
    print(lives_table(archive, model, topics), end="\n\n")
    print(words_table(model, list(subject.names), topics))
    right = float(np.mean(np.asarray(topics)[archive.theme] == topic_of))
    print_paragraph(
        f"This corpus is generated: {len(notes):,} notes of an invented archive, with dates from {FIRST} to {LAST}, "
        f"on {len(THEMES)} themes whose shares and words change with time. {type(model).__name__} is fitted to the "
        f"texts and dates, without the themes: {100 * right:.1f}% of the notes are in the topic of their theme "
        f"(NMI {normalized_mutual_info_score(archive.theme, topic_of):.3f}). The persistence is {PERSISTENCE}, above "
        "the default of 0.98: topics that may change faster can join a theme that ends with one that begins. "
        f"{time.perf_counter() - start:.1f} s."
    )
    settings = {
        "command": "demo",
        "model": type(model).__name__,
        "topics": len(THEMES),
        "over_time": FIELD,
        "seed": 0,
    }
    notice = "This corpus is generated."
    return topics_content(subject, times, About(settings, [notice]))
