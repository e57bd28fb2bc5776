"""Model folders of small topic models: four topics with words of their own."""

import numpy as np

from arbora import TopicModel

WORDS = {
    "sea": "fish sail wave salt tide harbour anchor",
    "land": "tree grass stone hill road field barn",
    "sky": "cloud star moon wind rain bird sun",
    "town": "house street market bridge tower shop square",
}


def topic_texts(seed, n=30):
    """Return n texts of each topic."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words.split(), 6)) for words in WORDS.values() for _ in range(n)]


def topics_folder(path, seed=0, n=30, **options):
    """Write the folder of a topic model of these texts; return its path."""
    texts = topic_texts(seed, n)
    TopicModel(options.pop("n_topics", 4), random_state=0).fit(texts).save(
        path, texts, name="places", **options
    )
    return path
